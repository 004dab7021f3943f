// What is made for the shell of a program's options, on the hidden request `PROGRAM [COMMAND] --help-as FORM`:
//
//   man    the manual page, as man reads it (cmake/man_pages.cmake makes the files)
//   words  what may be typed, a line each, for completion (front/completion.bash, .zsh), its parts divided by tabs:
//            command  NAME  what it does
//            option   --NAME  -N or nothing  flag|file|folder|text  values that are known, by spaces  what it is
//            argument NAME  (nothing)        file|folder|text       values                           what it is
//
// Of a program with a table of options OptionTable::parse answers it; of one with commands the program, by commands_as.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace automap {

// FORM of a command line that ends with --help-as FORM; nothing when it does not. Throws Error(kUsage) of another form.
std::optional<std::string> page_form(int argc, const char* const* argv);

// The page, in one of the forms, of a program that runs commands: their names, and what each does.
std::string commands_as(const std::string& form, const std::string& program, const std::string& summary,
                        const std::vector<std::pair<std::string, std::string>>& commands);

}  // namespace automap
