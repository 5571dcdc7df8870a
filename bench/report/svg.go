package report

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Sizes of all drawings, in pixels. They are narrow, so that the text is still readable where a telephone shrinks them.
const (
	pictureWidth = 480.0
	fontSize     = 13.0
	margin       = 12.0
	bold         = 1.14 // how much wider bold text is
)

// drawing is an SVG that is being written. What does not change between light, dark and adaptive is here and not in paint.
type drawing struct {
	strings.Builder
	paint paint
}

// finish wraps what was drawn. Inside of an HTML page the page is the background and the margin.
func (d *drawing) finish(label string, height float64, inline bool) string {
	open, left := `<svg`, margin
	if !inline {
		left = 0
		open += ` xmlns="http://www.w3.org/2000/svg" width="` + px(pictureWidth) + `" height="` + px(height) + `"`
	}
	open += fmt.Sprintf(` viewBox="%s 0 %s %s" role="img" aria-label="%s" font-size="%s"`, px(left), px(pictureWidth-2*left), px(height), escape(label), px(fontSize))
	open += ` font-family="system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif">` + "\n"
	if !inline {
		open += fmt.Sprintf(`<rect width="100%%" height="100%%" rx="6" fill="%s"/>`+"\n", d.paint("page"))
	}
	return open + d.String() + "</svg>\n"
}

// text puts s on the baseline y; anchor is start, middle or end; extra are more attributes.
func (d *drawing) text(x, y float64, anchor, role, extra, s string) {
	fmt.Fprintf(d, `<text x="%s" y="%s" text-anchor="%s" style="fill:%s" %s>%s</text>`+"\n", px(x), px(y), anchor, d.paint(role), extra, escape(s))
}

func (d *drawing) line(x1, y1, x2, y2 float64, role string, width float64, extra string) {
	fmt.Fprintf(d, `<path d="M%s %sL%s %s" style="stroke:%s" stroke-width="%g" fill="none" %s/>`+"\n", px(x1), px(y1), px(x2), px(y2), d.paint(role), width, extra)
}

// heading draws the title and the line below it, broken to the width, and returns where they end.
func (d *drawing) heading(title, below string) float64 {
	y := margin + 5
	for _, part := range wrapped(title, pictureWidth-2*margin, 16*bold) {
		d.text(margin, y+8, "start", "ink", `font-size="16" font-weight="600"`, part)
		y += 20
	}
	for _, part := range wrapped(below, pictureWidth-2*margin, 12) {
		d.text(margin, y+6, "start", "muted", `font-size="12"`, part)
		y += 16
	}
	return y + 4
}

// notes are the rows that need more room than there is beside their mark. It returns where they end.
func (d *drawing) notes(y float64, rows []row) float64 {
	for _, r := range rows {
		d.text(margin, y+10, "start", "error", `font-size="11"`, shortened(r.summary(), pictureWidth-2*margin, 11))
		y += 16
	}
	return y
}

// px keeps a tenth of a pixel.
func px(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // into memory
	return b.String()
}

// widthOf guesses how wide a text is: which font there will be is not known.
func widthOf(s string, size float64) float64 {
	width := 0.0
	for _, r := range s {
		switch {
		case r > 0x2e7f: // Chinese, Japanese, Korean; symbols
			width++
		case strings.ContainsRune("il|.,:;'!()[]fjrt -", r):
			width += 0.38
		case strings.ContainsRune("mwMW@%—…", r) || (r >= 'A' && r <= 'Z'):
			width += 0.8
		default:
			width += 0.6
		}
	}
	return width * size
}

// shortened cuts a text that is too wide.
func shortened(s string, width, size float64) string {
	if widthOf(s, size) <= width {
		return s
	}
	runes := []rune(s)
	for len(runes) > 0 && widthOf(string(runes)+"…", size) > width {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimSpace(string(runes)) + "…"
}

// wrapped breaks a text between words; a word that is too wide is cut.
func wrapped(s string, width, size float64) []string {
	var lines []string
	for _, word := range strings.Fields(s) {
		if n := len(lines); n > 0 && widthOf(lines[n-1]+" "+word, size) <= width {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, shortened(word, width, size))
		}
	}
	return lines
}
