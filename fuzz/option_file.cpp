// Files of options, INI and JSON, for a table with options of every type.
#include <limits>
#include <vector>

#include "common/base/options.h"
#include "fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  bool flag = false, json = false;
  int count = 1;
  std::int64_t large = 1;
  std::uint64_t larger = 1;
  double number = 1, seconds = std::numeric_limits<double>::infinity();
  std::string text;
  std::vector<std::string> list;
  OptionTable table("fuzz", "reads options");
  table.add_flag(&flag, "flag", "a flag");
  table.add(&count, "count", "an int");
  table.add(&large, "large", "a larger one");
  table.add(&larger, "larger", "without a sign");
  table.add(&number, "number", "a double");
  table.add_seconds(&seconds, "seconds", "a time");
  table.add(&text, "text", "a text").no_file();
  table.add(&list, "list", "texts").no_file();
  table.add_common(&json);
  return fuzz::read_or_refuse([&] {
    const std::string path = fuzz::path_of_file_with(fuzz::text_of(data, size));
    const char* const arguments[] = {"automap-fuzz", "--config", path.c_str(), "--quiet"};
    if (table.parse(4, arguments)) table.config_text();
  });
}
