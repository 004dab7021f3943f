#!/usr/bin/env python3
"""Fails when two .cpp files of one room have a file-local name in common.

    scripts/check_unity.py              checks the repository
    scripts/check_unity.py --self-test  checks the checker

The files of a room are compiled together (CMake's unity builds), as are those of a folder of tests. A name of an unnamed
namespace is then seen by the files that follow: at best it is defined twice, at worst an overload of another file, or its
constant in place of a header's, is taken without a word. So within one room each of them (functions, constants, types,
enumerators, macros) stands once, and is no name of a header of that room, of common/base, or of a room whose namespace a
file of it uses (`using namespace graph`). The same alias may be said again: `using graph::Shape;`, `using Json = JsonText;`.

What is read: what starts a line in .cpp files (the layout is clang-format's), in unnamed namespaces and, where it is local
to its file too (static, constexpr, const, types, aliases, macros), outside them. main.cpp and files that CMake keeps to
themselves (SKIP_UNITY_BUILD_INCLUSION in CMakeLists.txt or tests/CMakeLists.txt) are compiled alone.
"""

import collections
import json
import pathlib
import re
import sys
import tempfile

PROPERTIES = re.compile(r"set_source_files_properties\(([^)]*?)\bPROPERTIES\b([^)]*)\)", re.S)
# Comments and texts, which may hold anything.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|\bu?8?R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.){1,8}\'', re.S)
DEFINE = re.compile(r"#\s*(define|undef)\s+(\w+)")
ALIAS = re.compile(r"using\s+(\w+)\s*=|using\s+(?:typename\s+)?[\w:]*?(\w+)\s*;|namespace\s+(\w+)\s*=")
TYPE = re.compile(r"(struct|class|union|enum(?:\s+(?:class|struct))?)\b\s*(?:\[\[\w+\]\]\s*|alignas\(\w+\)\s*)*"
                  r"([\w:]*)\s*(?:final\s*)?([{;:]|$)")
# What stands before a name and is none: attributes, and macros of ours that are followed by parentheses.
ATTRIBUTES = re.compile(r"\[\[[^\]]*\]\]|__attribute__\(\(.*?\)\)(?=\s)|\balignas\([^)]*\)|extern\s*\"\"\s*")
USED = re.compile(r"^\s*using namespace (?:\w+::)*(\w+);", re.M)
LOCAL = re.compile(r"(?:inline\s+)?(?:static|constexpr|const|thread_local)\b")
UNNAMED = "namespace { "
Found = collections.namedtuple("Found", "name line alias")


def without_arguments(text):
    """text without the template arguments in it: a<b<c>, d> e -> a e."""
    while True:
        shorter = re.sub(r"(?<=\w)\s*<[^<>()]*(?:\([^<>()]*\)[^<>()]*)*>", "", text)
        if shorter == text:
            return text
        text = shorter


def declarators(text):
    """The names that "type a = 1, b[2], c{3};" defines."""
    names, depth, start = [], 0, 0
    for i, letter in enumerate(text + ";"):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and letter in ",;" or i == len(text):
            name = re.match(r".*?([\w:]+)\s*(?:[=\[{;]|$)", text[start:i].strip(), re.S)
            if name and "::" not in name.group(1):
                names.append(name.group(1))
            start = i + 1
            if letter == ";":
                break
    return names


def names_of(statement, inside):
    """Names that a statement at the start of a line makes local to its file, and its text if the same may be said again."""
    text = " ".join(statement.split())
    while text.startswith("template"):
        depth = 0
        for i, letter in enumerate(text):
            depth += (letter == "<") - (letter == ">" and text[i - 1] != "-")
            if letter == ">" and depth == 0:
                break
        text = text[i + 1:].strip()
    text = ATTRIBUTES.sub("", text).strip()
    if not text or re.match(r"[})]|namespace\b(?!\s+\w+\s*=)|static_assert\b|extern template\b|public:|private:", text):
        return [], None
    if re.match(r"using\s+namespace\b", text):
        return [], None
    alias = ALIAS.match(text)
    if alias:
        # clang takes one of a type inside and outside an unnamed namespace for hiding the other.
        scope = UNNAMED if inside and re.match(r"using \w+ =", text) else ""
        return [next(name for name in alias.groups() if name)], scope + re.sub(r"(?<= )::", "", text)
    kind = TYPE.match(text)
    if kind:
        word, name, end = kind.groups()
        if end == ";":
            return [], None
        names = [name] if name and "::" not in name else []
        if word == "enum" and "{" in text:
            names += re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"\([^()]*\)", "", text[text.index("{") + 1:].split("}")[0]))
        return names, None
    if not (inside or LOCAL.match(text)) or re.match(r"#|(?:INSTANTIATE_|TEST|BENCHMARK)\w*\(|extern\b", text):
        return [], None
    plain = re.sub(r"\(\*(\w+)\)\([^()]*\)", r"\1", without_arguments(text))  # a pointer to a function
    function = re.search(r"([\w:~]*\boperator\s*(?:\(\)|[^\w\s(]+|\w+)|[\w:~]+)\s*\(", plain)
    value = re.search(r"[={\[;]", plain)
    if function and (not value or function.start() < value.start() or "operator" in function.group(1)):
        name = re.sub(r"\s+", "", function.group(1))
        # A member is of its class; a macro's call that is a statement of its own defines what only the macro knows.
        if "::" in name or function.start() == 0 or not (inside or text.startswith("static")):
            return [], None
        return [name], None
    return declarators(plain), None


def blank(match):
    """Lines stay, and the quotes of a text."""
    found = match.group(0)
    kept = "" if found[0] == "/" else "0" if found[0] == "'" else '""'
    return kept + "\n" * found.count("\n")


def local_names(text, inside=False):
    """The names that are local to a .cpp file; with `inside` those that a header declares."""
    found, macros = [], {}
    pending, first, continued, header = "", 0, False, inside
    original = text.splitlines()
    for number, line in enumerate(NO_CODE.sub(blank, text).splitlines(), 1):
        directive = continued or line.lstrip().startswith("#")
        if directive:
            define = None if continued else DEFINE.match(line.lstrip())
            if define and define.group(1) == "define":
                macros.setdefault(define.group(2), number)
            elif define:
                macros.pop(define.group(2), None)
            continued = line.endswith("\\")
            continue
        if original[number - 1].startswith("namespace {"):
            inside, pending = True, ""
        elif original[number - 1].rstrip() == "}  // namespace":
            inside, pending = header, ""
        if not pending:
            # What does not start with a name or an attribute goes on with, or ends, what stands before it.
            if not re.match(r"\w|\[\[", line) or re.match(r"(inline )?namespace\b[^=]*\{", line):
                continue
            first = number
        pending += line + "\n"
        end = pending.rstrip()
        whole = re.match(r"enum\b(?! class| struct)", pending) is None or end.endswith(";")
        # A macro's call that needs no semicolon is a statement, too.
        call = re.match(r"[A-Z_]+\(", end) and end.endswith(")") and end.count("(") == end.count(")")
        if end.endswith((";", "{", "}")) and whole or call:
            names, alias = names_of(pending, inside)
            found += [Found(name, first, alias) for name in names]
            pending = ""
    return found + [Found(name, number, None) for name, number in macros.items()]


def rooms(root):
    """The files that are compiled together: room or folder of tests -> paths."""
    found = {}
    declared = [room["folder"] for room in json.loads((root / "cmake/rooms.json").read_text(encoding="utf-8"))["rooms"]]
    for top, pattern in (("", "*.cpp"), ("tests/", "*_test.cpp")):
        listed = (root / top / "CMakeLists.txt").read_text(encoding="utf-8") if (root / top / "CMakeLists.txt").is_file() else ""
        listed = re.sub(r"#[^\n]*", "", listed)
        alone = {name for files, properties in PROPERTIES.findall(listed)
                 if "SKIP_UNITY_BUILD_INCLUSION" in properties for name in files.split()}
        for folder in declared:
            files = sorted((root / top / folder).glob(pattern))
            found[top + folder] = [f for f in files if f.name != "main.cpp" and f.relative_to(root / top).as_posix() not in alone]
    return found


def names_of_headers(root, room, texts, listed):
    """What files of a room see without saying where it is from: name -> (place, alias)."""
    folders = [room.replace("tests/", ""), "common/base"]
    for name in sorted({name for text in texts for name in USED.findall(text)}):
        folders += [folder for folder in listed if folder.split("/")[-1] == name]
    found = {}
    for folder in dict.fromkeys(folders):
        for header in sorted((root / folder).glob("*.h")):
            for name, line, alias in local_names(header.read_text(encoding="utf-8"), inside=True):
                found.setdefault(name, (f"{header.relative_to(root).as_posix()}:{line}", alias and alias.replace(UNNAMED, "")))
    return found


def check(root):
    """Problems found below root, as lines."""
    problems = []
    listed = rooms(root)
    for room, files in listed.items():
        texts = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}
        declared = {} if room.startswith("tests/") else names_of_headers(root, room, texts.values(), listed)
        places = collections.defaultdict(dict)
        for file, text in texts.items():
            for name, line, alias in local_names(text):
                places[name].setdefault(file, (line, alias))
        for name, by_file in sorted(places.items()):
            aliases = {alias for _, alias in by_file.values()}
            where = ", ".join(f"{file}:{line}" for file, (line, _) in by_file.items())
            if len(by_file) > 1 and (len(aliases) > 1 or None in aliases):
                problems.append(f"{where}: {name} is local to each of them, but they are compiled together: say it once, in a header "
                                f"of {room}, where it is the same, and give it telling names where it is not")
            elif name in declared and not all(alias and alias.replace(UNNAMED, "") in (declared[name][1], f"using internal::{name};")
                                              for alias in aliases):
                problems.append(f"{where}: {name} is also declared in {declared[name][0]}, and which of the two the other files of "
                                f"{room} get depends on what is compiled together: take that one, or give this one a telling name")
    return problems


def self_test():
    listing = """
set_source_files_properties(a/alone.cpp a/other.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS -x)
"""
    # One of everything that has a name of its own file, and what has none or may be said again.
    one = """#include <a>
#define MACRO(x) \\
int in_macro(x) {
#define GONE 1
#undef GONE
namespace a {
namespace {
using graph::Shape;
using Json = base::Json;
using namespace graph;
constexpr double kA = 1, kB[] = {2, 3}, kC{4};  // int in_comment() {
const char* const kText = R"(
int in_text() {
)";
const std::map<int, std::pair<int, char>> kMap = {{1, {2, ';'}}};
template <typename T, int (*f)(int)>
std::function<void(int)> function(
    const std::vector<int>& many,
    int more = at(1)) {
  int in_body = 0;
}
[[noreturn]] void fails(const std::string& what) { throw what; }
__attribute__((target("avx2"))) void vectors(int x) {
}
bool operator<(const A& a, const A& b) { return a.x < b.x; }
struct Forward;
struct Struct : Base {
  int member;
};
void Struct::method() {}
const int Struct::kOfClass[] = {1};
class Class final {};
enum class Scoped { kFirst, kSecond };
enum Plain : int {
  kOne = sizeof(int),
  kTwo
};
std::atomic<int> variable{0};
int (*pointer)(int) = nullptr;
TEST(Suite, Name) {
}
AUTOMAP_LIST(Thing)
int behind() {
  return 1;
}
}  // namespace
int outside(int local) {
}
static int static_function() {
}
constexpr int kOutside = 1;
const Type& of_a_header() {
}
}  // namespace a
"""
    names = ["Class", "Json", "MACRO", "Plain", "Scoped", "Shape", "Struct", "behind", "fails", "function", "kA", "kB",
             "kC", "kMap", "kOne", "kOutside", "kText", "kTwo", "operator<", "pointer", "static_function", "variable", "vectors"]
    found = sorted(name for name, _, _ in local_names(one))
    assert found == sorted(names), set(found) ^ set(names)

    def write(root, name, text):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write(root, "CMakeLists.txt", listing)
        write(root, "cmake/rooms.json", json.dumps({"rooms": [{"folder": "a"}, {"folder": "a/b"}]}))
        write(root, "a/one.cpp", one)
        for name in ("a/alone.cpp", "a/main.cpp", "a/b/one.cpp", "tests/a/one_test.cpp", "tests/a/helper.cpp"):
            write(root, name, one)
        write(root, "a/own.h", "namespace a {\nusing Shown = base::Shown;\nint of_header(int x);\n}  // namespace a\n")
        write(root, "a/b/inner.h", "namespace a::b {\nconstexpr int kInner = 1;\n}  // namespace a::b\n")
        write(root, "common/base/base.h", "class Base {\n public:\n  int member() const;\n};\n")
        assert check(root) == [], check(root)
        allowed = ["using graph::Shape;", "using Shown = base::Shown;", "using internal::of_header;", "int member() {\n}",
                   "int kInner;", "using Json = base::Json;", "struct Forward;", "int outside(double x) {\n}"]
        for text in allowed:
            path = write(root, "a/two.cpp", f"namespace a {{\nnamespace {{\n{text}\n}}  // namespace\n}}  // namespace a\n"
                         if "outside" not in text else text)
            assert check(root) == [], (text, check(root))
        for path in ("a/three.cpp", "tests/a/three_test.cpp"):
            write(root, path, "using Outside = int;\n")
        wrong = {"using Outside = int;": "Outside", "int function(double x) {\n}": "function", "constexpr int kZ = 2,\n    kB = 3;": "kB", "using Json = Other;": "Json",
                 "using other::Shape;": "Shape", "struct Scoped {\n};": "Scoped", "enum { kMore,\n kOne };": "kOne",
                 "bool operator<(B b, B c) {\n}": "operator<", "#define MACRO": "MACRO", "namespace variable = x;": "variable"}
        for text, name in wrong.items():
            for path in ("a/two.cpp", "tests/a/two_test.cpp"):
                made = write(root, path, f"\nnamespace {{\n{text}\n}}  // namespace\n")
                problems = check(root)
                assert len(problems) == 1 and f": {name} is local" in problems[0], (text, problems)
                assert f"{path}:3" in problems[0], problems
                made.unlink()
        hidden = {"int of_header(double x) {\n}": "a/own.h:3", "using Shown = Other;": "a/own.h:2",
                  "struct Base {\n};": "common/base/base.h:1",
                  "using namespace b;\nint kInner = 2;": "a/b/inner.h:2"}
        for text, place in hidden.items():
            made = write(root, "a/two.cpp", f"namespace {{\n{text}\n}}  // namespace\n")
            problems = check(root)
            assert len(problems) == 1 and f"is also declared in {place}" in problems[0], (text, problems)
            made.unlink()
    print("check_unity: self-test passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    root = pathlib.Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
