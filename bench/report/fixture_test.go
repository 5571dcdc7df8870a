package report

import (
	"math"
	"math/rand/v2"
	"time"
)

var contestants = []string{"none", "singleflight", "go-redis/cache", "redsync", "redislock", "rockscache", "rockscache strong", "sturdyc", "otter",
	"rueidis", "rueidis tracked", "rueidisaside", "stockade polling", "stockade", "stockade stale", "stockade local"}

// fixture is a report like a real one, with all that a real one may have: numbers of every size, zeros, errors with figures and
// without, figures that are missing, long and foreign names. Its numbers are made up.
func fixture() *Report {
	r := &Report{
		Started: time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC),
		Took:    17*time.Minute + 31*time.Second + 4*time.Millisecond,
		Command: "go run ./herd -profile full -rounds 3 -redis 127.0.0.1:6379",
		Profile: "full",
		Method:  "Each round runs all contestants, one behind another, in an order that is drawn anew. Each has four processes.\n\nRedis is empty before each.",
		Machine: Machine{CPU: "Example 9000", Cores: 2, Memory: "8 GB", OS: "Linux 6.1", Go: "go1.26.8", Redis: "redis-server 7.0.15", Origin: "SQLite 3.50",
			Modules: []Module{{"github.com/redis/go-redis/v9", "v9.23.0"}, {"github.com/bsm/redislock", "v0.9.4"}, {"github.com/maypok86/otter/v2", "v2.4.0"}}},
	}
	for _, name := range contestants {
		peer := Peer{Name: name, About: "reads with " + name + ", loads on a miss and stores what it loaded"}
		if len(r.Peers)%3 == 1 {
			peer.Settings = "wait 5 s, retry after 10 ms"
		}
		r.Peers = append(r.Peers, peer)
	}
	r.Scenarios = []Scenario{cold(), rolling(), killed(), overTime(), curves()}
	return r
}

func cold() Scenario {
	s := Scenario{
		Name: "cold", Number: "S1", Title: "A cold key",
		About: "A key that everybody wants is missing. Four processes ask for it at the same moment, and a load takes 100 ms.\n\nOne load is what there has to be.",
		Figures: []Figure{
			{"loads", "loads", "", Lower, "How often the origin was asked."},
			{"p99", "p99", "ms", Lower, "99 of 100 callers had their answer by then."},
			{"commands", "commands", "", Lower, "What all processes sent to Redis."},
			{"wrong", "wrong answers", "", Lower, ""},
			{"memory", "heap per waiter", "KB", Either, "What a waiting caller takes."},
		},
		Charts: []Chart{
			{Name: "loads", Title: "Loads of a cold key", Kind: Bars, Of: "loads", YLog: true},
			{Name: "p99", Title: "Time until 99 of 100 callers have their answer", Kind: Bars, Of: "p99", YTitle: "ms"},
			{Name: "commands", Title: "Commands to Redis", Kind: Bars, Of: "commands", YLog: true, Cases: []string{"4 × 250 callers, 100 ms"}},
		},
		Noise: Noise{12100 * time.Microsecond, 11900 * time.Microsecond, 15240 * time.Microsecond},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, of := range []string{"4 × 250 callers, 100 ms", "20 × 50 callers, 100 ms"} {
		for round := 1; round <= 3; round++ {
			for i, name := range contestants {
				m := Measurement{Case: of, Contestant: name, Round: round, Figures: map[string]float64{
					"loads": 1, "p99": 101 + 4*random.Float64() + 30*float64(i%4), "commands": 12 + float64(random.IntN(5)), "wrong": 0, "memory": 0.6 + random.Float64(),
				}}
				switch name {
				case "none", "go-redis/cache":
					m.Figures["loads"], m.Figures["commands"] = 1000, 2000
				case "singleflight", "sturdyc", "otter":
					m.Figures["loads"] = 4
				case "redsync":
					m.Figures["loads"], m.Figures["p99"], m.Figures["commands"] = float64(1+random.IntN(3)), 480+70*random.Float64(), 41388+float64(random.IntN(9000))
					m.Figures["wrong"] = 0.0004
				case "rueidis":
					m.Figures = nil
					m.Error = "dial tcp 127.0.0.1:6379: connect: connection refused"
				case "redislock":
					if round == 2 {
						m.Error = "3 of 1000 callers: redislock: not obtained"
					}
				case "rueidis tracked":
					delete(m.Figures, "memory")
					delete(m.Figures, "p99")
				case "stockade local":
					m.Figures["loads"] = 0
				}
				s.Rows = append(s.Rows, m)
			}
		}
	}
	return s
}

func rolling() Scenario {
	s := Scenario{
		Name: "rolling", Number: "S2", Title: "Keys that expire while they are read",
		About:   "A hundred keys expire again and again.",
		Figures: []Figure{{"ratio", "loads against the ideal", "×", Lower, "1 is one load for each expiry."}, {"p99", "p99", "ms", Lower, ""}},
		Charts: []Chart{
			{Name: "latency", Title: "Latency of a read", Kind: Lines, Of: "latency", XTitle: "share of the reads, %", YTitle: "ms", YLog: true},
			{Name: "ratio", Title: "Loads against the ideal", Kind: Bars, Of: "ratio"},
		},
	}
	for i, name := range contestants {
		var points []Point
		for x := 0.0; x <= 100; x += 2 {
			points = append(points, Point{x, 0.05*float64(1+i%5) + math.Exp(x*x/(1500+150*float64(i)))*float64(1+i)/20})
		}
		s.Rows = append(s.Rows, Measurement{Contestant: name, Round: 1, Figures: map[string]float64{"ratio": 1 + 2/float64(1+i*i), "p99": points[49].Y},
			Series: map[string][]Point{"latency": points}})
	}
	return s
}

func killed() Scenario {
	s := Scenario{
		Name: "killed", Number: "S4", Title: "The holder is killed",
		About:   "The process that loads is killed with SIGKILL.",
		Figures: []Figure{{"recovery", "time until the next answer", "ms", Lower, ""}},
		Charts: []Chart{
			{Name: "recovery", Title: "Until the next answer", Kind: Bars, Of: "recovery", YTitle: "ms", Contestants: []string{"rueidisaside", "rockscache", "stockade"}},
			{Name: "all", Title: "Until the next answer, with a title that is too long for a single line", Kind: Bars, Of: "recovery"},
		},
	}
	for round := 1; round <= 2; round++ {
		for i, name := range []string{"rueidisaside", "rockscache", "stockade", "a contestant with a name that is much longer than any that there is", "缓存 <b>&amp;"} {
			s.Rows = append(s.Rows, Measurement{Case: "100 ms", Contestant: name, Round: round, Figures: map[string]float64{"recovery": []float64{9450, 3700, 2300, 0, -5}[i] * (1 + float64(round)/50)},
				Error: []string{"the process could not be started again", "", "", "", ""}[i]})
		}
	}
	return s
}

func overTime() Scenario {
	s := Scenario{
		Name: "avalanche", Number: "S9", Title: "An avalanche",
		About:   "All keys expire at the same moment.",
		Figures: []Figure{{"peak", "highest rate of queries", "1/s", Lower, ""}, {"answered", "reads answered", "%", Higher, ""}},
		Charts: []Chart{
			{Name: "queries", Title: "Queries of the origin", Kind: Lines, Of: "queries", XTitle: "seconds", YTitle: "queries per second"},
			{Name: "queries-log", Title: "Queries of the origin", Kind: Lines, Of: "queries", XTitle: "seconds", YTitle: "queries per second", YLog: true},
		},
	}
	random := rand.New(rand.NewPCG(3, 4))
	for _, of := range []string{"jitter", "no jitter"} {
		for round := 1; round <= 3; round++ {
			for i, name := range []string{"none", "singleflight", "rockscache", "sturdyc", "stockade polling", "stockade", "stockade stale", "redsync"} {
				m := Measurement{Case: of, Contestant: name, Round: round, Series: map[string][]Point{}}
				if name == "redsync" {
					m.Error = "redsync: failed to acquire lock"
				}
				peak := 0.0
				for x := 0.0; x <= 30 && name != "redsync"; x += 0.25 {
					y := math.Max(0, math.Round(float64(40*(8-i))*math.Exp(-(x-8)*(x-8)/2)+20*random.Float64()-10))
					if i < 2 && x > 8 {
						y = 300 - 60*float64(i) + 25*random.Float64()
					}
					peak = max(peak, y)
					m.Series["queries"] = append(m.Series["queries"], Point{x, y})
				}
				if peak > 0 {
					m.Figures = map[string]float64{"peak": peak, "answered": 100 - 30/float64(1+i)}
				}
				s.Rows = append(s.Rows, m)
			}
		}
	}
	return s
}

func curves() Scenario {
	s := Scenario{
		Name: "xfetch", Number: "S11", Title: "Early refresh: theory beside measurement",
		Figures: []Figure{{"at1", "recomputations at β = 1", "", Either, ""}},
		Charts:  []Chart{{Name: "curve", Title: "Recomputations at the same time", Kind: Lines, Of: "curve", XTitle: "β", YTitle: "recomputations", XLog: true, YLog: true}},
	}
	for _, name := range []string{"theory", "none", "stockade"} {
		var points []Point
		for _, beta := range []float64{0.25, 0.5, 1, 2, 4, 8} {
			points = append(points, Point{beta, map[string]float64{"theory": math.Exp(1 / beta), "none": 1.03 * math.Exp(1/beta), "stockade": 1}[name]})
		}
		s.Rows = append(s.Rows, Measurement{Case: "200 reads/s", Contestant: name, Round: 1, Figures: map[string]float64{"at1": points[2].Y}, Series: map[string][]Point{"curve": points}})
	}
	return s
}
