package foreign

import (
	"bytes"
	"strings"
)

// SniffBytes is the number of bytes that Sniff needs at most, from the beginning of a file.
const SniffBytes = 512

// formats are beginnings of files that users mistake for the expected one, each with a name and a
// remedy.
var formats = []struct{ begin, name string }{
	{"version https://git-lfs.github.com/spec/", "a Git LFS pointer, not the file that it points to: run git lfs pull, or download the file itself"},
	{"\x1f\x8b", "compressed by gzip: decompress it first"},
	{"BZh", "compressed by bzip2: decompress it first"},
	{"\xfd7zXZ\x00", "compressed by xz: decompress it first"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd: decompress it first"},
	{"PK\x03\x04", "a zip archive, such as PyTorch's torch.save (.pt, .bin) and NumPy's .npz write: convert it in Python"},
	{"\x80\x02\x8a\x0a", "a Python pickle, as an old torch.save writes: convert it in Python"},
	{"GGUF", "a GGUF file, of llama.cpp: convert it"},
	{"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes: convert it"},
	{"\x93NUMPY", "a NumPy array (.npy): convert it in Python"},
	{"\x7fELF", "a program or library"},
}

// texts is the same for texts, which may start with blanks and are compared in lower case.
var texts = []struct{ begin, name string }{
	{"<!doctype html", "an HTML page: the server sent a web page instead of the file"},
	{"<html", "an HTML page: the server sent a web page instead of the file"},
	{"<?xml", "an XML text, perhaps the error message of a server"},
	{"{", "a JSON text, perhaps the error message of a server or an index of files"},
	{"error", "a text, perhaps the error message of a server"},
	{"not found", "a text, perhaps the error message of a server"},
	{"access denied", "a text, perhaps the error message of a server"},
}

// Sniff names the format of a file that starts with begin, with a remedy: "a zip archive, ...". It
// knows formats that are often downloaded or saved by mistake.
//
// Returns: "" for an unknown format.
func Sniff(begin []byte) string {
	for _, f := range formats {
		if bytes.HasPrefix(begin, []byte(f.begin)) {
			return f.name
		}
	}
	if len(begin) >= 64 && len(bytes.Trim(begin, "\x00")) == 0 {
		return "zeros, as an interrupted download leaves them: download it again"
	}
	if bytes.IndexByte(begin[:min(len(begin), 8)], 0) >= 0 {
		return "" // no text: a length or a number
	}
	text := strings.ToLower(strings.TrimLeft(strings.TrimPrefix(string(begin[:min(len(begin), SniffBytes)]), "\ufeff"), " \t\r\n"))
	for _, f := range texts {
		if strings.HasPrefix(text, f.begin) {
			return f.name
		}
	}
	return ""
}
