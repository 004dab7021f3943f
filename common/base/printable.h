// Makes text from outside (names in models, clusters, plans, files, arguments) safe to show to people.
//
// A terminal takes some bytes for commands, and some characters change or hide what stands beside them. They are
// written as escapes that can be seen, as C and Python write them: "\n", "\x1b", "\u202e", "\U000e0041". These are the
// controls (C0, DEL, C1), line and paragraph separators, and everything that Unicode lets programs not show
// (Default_Ignorable_Code_Point: bidirectional controls, zero-width characters, fillers, variation selectors, tags),
// interlinear annotations, and every byte that is not part of valid UTF-8. All else stays, backslashes too, so that
// what is safe already does not change: printable(printable(x)) == printable(x).
//
// Errors, log lines, progress and cells of tables are made printable by their own classes, and print() keeps nothing
// but line ends. Sentences of reports call printable() on the names in them, lest a name's line end forge a line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace automap {

// One line: line ends and tabs are escaped too. printable("a\n\x1b[2J") = "a\\n\\x1b[2J".
std::string printable(std::string_view text);

// Several lines: '\n' stays.
std::string printable_lines(std::string_view text);

// The beginning of `text`, made printable, in at most `width` columns, with "…" where something is missing. Cuts
// neither characters nor escapes: excerpt("ab\ncd", 4) = "ab…".
std::string excerpt(std::string_view text, int width);

// Appends the printable form of the character at `at` (a byte, when it begins no character; the whole of an escape that
// stands in the text) and returns where the next one begins.
std::size_t append_printable(std::string_view text, std::size_t at, std::string* out);

// `json` with the characters that are not safe to show written as JSON's \u escapes: the same document for every
// reader. Of JSON text only (there they can stand in strings alone).
std::string printable_json(std::string json);

}  // namespace automap
