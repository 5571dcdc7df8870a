module github.com/stockade-cache/stockade/bench

go 1.26.0

replace github.com/stockade-cache/stockade => ../
