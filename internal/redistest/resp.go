package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// readCommand reads one command as clients send it, an array of bulk strings, and returns it also as it came.
func readCommand(r *bufio.Reader) (command []string, raw []byte, err error) {
	var seen bytes.Buffer
	n, err := readLength(r, &seen, '*')
	if err != nil {
		return nil, nil, err
	}
	for range n {
		length, err := readLength(r, &seen, '$')
		if err != nil {
			return nil, nil, err
		}
		from := seen.Len()
		if err := readBytes(r, &seen, length+2); err != nil {
			return nil, nil, err
		}
		command = append(command, string(seen.Bytes()[from:from+length]))
	}
	if len(command) == 0 {
		return nil, nil, fmt.Errorf("empty command")
	}
	command[0] = strings.ToLower(command[0])
	return command, seen.Bytes(), nil
}

func readLength(r *bufio.Reader, seen *bytes.Buffer, kind byte) (int, error) {
	line, err := readLine(r, seen)
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("got %q, want %q", line, kind)
	}
	return strconv.Atoi(line[1:])
}

// readReply reads one reply as it comes. push says that no command asked for it: a message of RESP3.
func readReply(r *bufio.Reader) (raw []byte, push bool, err error) {
	var seen bytes.Buffer
	err = readValue(r, &seen)
	return seen.Bytes(), err == nil && seen.Bytes()[0] == '>', err
}

// readValue reads one value of RESP2 or RESP3, with all that it contains.
func readValue(r *bufio.Reader, seen *bytes.Buffer) error {
	line, err := readLine(r, seen)
	if err != nil {
		return err
	}
	switch line[0] {
	case '+', '-', ':', '_', '#', ',', '(':
		return nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil {
		return err
	}
	switch line[0] {
	case '$', '!', '=':
		if n < 0 {
			return nil
		}
		return readBytes(r, seen, n+2)
	case '%':
		n *= 2
	case '|':
		n = 2*n + 1 // attributes stand before the value they are about
	case '*', '~', '>':
	default:
		return fmt.Errorf("unknown kind of reply: %q", line)
	}
	for range n {
		if err := readValue(r, seen); err != nil {
			return err
		}
	}
	return nil
}

func readLine(r *bufio.Reader, seen *bytes.Buffer) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	seen.WriteString(line)
	if len(line) < 3 {
		return "", fmt.Errorf("short line %q", line)
	}
	return line[:len(line)-2], nil
}

func readBytes(r *bufio.Reader, seen *bytes.Buffer, n int) error {
	_, err := io.CopyN(seen, r, int64(n))
	return err
}
