package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is seconds of processor time so far.
type usage struct {
	at      time.Time
	servers float64
	proxy   float64
	beside  float64
	own     float64
	kernel  float64 // its threads: most of it writes to the disk what the servers wrote
	machine float64 // all that is not idle; what the host took away too
}

func measure() usage {
	u := usage{servers: secondsOf(*pids), proxy: secondsOf(*proxies), beside: secondsOf(*beside)}
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	u.own = float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if fields := statFields(entry.Name()); len(fields) > 12 && fields[1] == "2" {
			u.kernel += ticks(fields[11]) + ticks(fields[12])
		}
	}
	raw, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(raw), "\n")
	for i, field := range strings.Fields(first)[1:9] {
		if i != 3 && i != 4 { // idle and waiting for the disk
			u.machine += ticks(field)
		}
	}
	u.at = time.Now()
	return u
}

func secondsOf(list string) float64 {
	sum := 0.0
	for _, pid := range strings.Fields(list) {
		fields := statFields(pid)
		if len(fields) < 13 {
			fail(fmt.Errorf("process %s is gone", pid))
		}
		sum += ticks(fields[11]) + ticks(fields[12])
	}
	return sum
}

// settle returns when the servers have dealt with what was sent: they take less than a quarter of a core. Three of our
// members take up to a fifth of one for minutes, while the scrub reads again what they have on disk.
func settle() {
	for before := secondsOf(*pids); ; {
		time.Sleep(time.Second)
		now := secondsOf(*pids)
		if now-before < 0.25 {
			return
		}
		before = now
	}
}

// wakeUpsOf counts how often a thread of these processes has waited for something and gone on.
func wakeUpsOf(list string) int {
	sum := 0
	for _, pid := range strings.Fields(list) {
		threads, _ := filepath.Glob("/proc/" + pid + "/task/*/status")
		for _, path := range threads {
			sum += valueIn(path, "voluntary_ctxt_switches:")
		}
	}
	return sum
}

// memoryKiB is the sum of a kind of Pss: a page that several processes share counts once.
func memoryKiB(list, kind string) int {
	sum := 0
	for _, pid := range strings.Fields(list) {
		sum += valueIn("/proc/"+pid+"/smaps_rollup", kind)
	}
	return sum
}

func valueIn(path, name string) int {
	raw, _ := os.ReadFile(path)
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			value, _ := strconv.Atoi(fields[1])
			return value
		}
	}
	return 0
}

// statFields are those behind the name in /proc/PID/stat: [1] parent, [11] utime, [12] stime.
func statFields(pid string) []string {
	if _, err := strconv.Atoi(pid); err != nil {
		return nil
	}
	raw, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
}

func ticks(field string) float64 {
	value, _ := strconv.ParseFloat(field, 64)
	return value / 100
}

// addUsage adds the rate, the processor time per message, and what share of one core anything else had.
func addUsage(figures map[string]any, from, to usage, count int) {
	took := to.at.Sub(from.at).Seconds()
	servers, proxy, own := to.servers-from.servers, to.proxy-from.proxy, to.own-from.own
	other := to.machine - from.machine - servers - proxy - own - (to.beside - from.beside) - (to.kernel - from.kernel)
	figures["other_pct"] = math.Round(math.Max(other, 0) / took * 100)
	if count > 0 {
		figures["messages"] = count
		figures["msgs_per_s"] = math.Round(float64(count) / took)
		figures["server_us"] = math.Round(servers*1e7/float64(count)) / 10
		if *proxies != "" {
			figures["proxy_us"] = math.Round(proxy*1e7/float64(count)) / 10
		}
		figures["client_us"] = math.Round(own*1e7/float64(count)) / 10
	}
}
