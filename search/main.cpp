// automap-search: which tensors of a training step to split over the devices. Only wires: search/commands.h.
#include "common/base/cli.h"
#include "search/commands.h"

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, automap::search::search_main);
}
