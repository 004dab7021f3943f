// Reads HLO and writes it again, for bench/check_xla_roundtrip.py:
//   bench-hlo_rewrite FILE FOLDER
// For module k of FILE: FOLDER/k.original.hlo (the text as read), k.hlo, k.shapes.hlo (operand shapes printed) and
// k.plain.hlo (without metadata).
#include <cstdio>
#include <string>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/hlo/hlo_text.h"
#include "common/hlo/hlo_writer.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench-hlo_rewrite FILE FOLDER\n");
    return 2;
  }
  try {
    const std::string text = automap::gunzip_if_gzip(automap::read_file(argv[1]), argv[1]);
    int k = 0;
    for (const std::string_view piece : automap::hlo::split_modules(text)) {
      const automap::graph::Graph graph = automap::hlo::read_hlo_text(std::string(piece), argv[1]);
      const std::string stem = std::string(argv[2]) + "/" + std::to_string(k++);
      automap::write_file_atomic(stem + ".original.hlo", piece);
      automap::hlo::WriteOptions options;
      automap::write_file_atomic(stem + ".hlo", automap::hlo::write_hlo_text(graph, options));
      options.operand_shapes = true;
      automap::write_file_atomic(stem + ".shapes.hlo", automap::hlo::write_hlo_text(graph, options));
      options = {};
      options.metadata = false;
      automap::write_file_atomic(stem + ".plain.hlo", automap::hlo::write_hlo_text(graph, options));
    }
    return 0;
  } catch (const automap::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return automap::exit_code(e.kind());
  }
}
