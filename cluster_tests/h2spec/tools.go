//go:build tools

// Package tools names the program that a test builds, so that go.mod has its version and go.sum its checksums.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
