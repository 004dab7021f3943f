#include "search/emit_files.h"

#include "common/base/error.h"
#include "common/base/log.h"
#include "plan/emit/emit.h"

namespace automap::search {

void EmitFiles::declare(OptionTable* table) {
  table->add(&hlo_, "emit-hlo", "write the module with sharding annotations, as XLA runs it")
      .writes_file()
      .metavar("FILE");
  table
      ->add(&jax_, "emit-jax", "write a Python file with a PartitionSpec per tensor, and the shardings inside the step")
      .writes_file()
      .metavar("FILE");
  table->add(&sdy_, "emit-sdy", "write the module as StableHLO with Shardy's attributes (needs a Python with jax)")
      .writes_file()
      .metavar("FILE");
}

void EmitFiles::open(OutputFiles* files) {
  files_ = files;
  files->add("--emit-hlo", hlo_);
  files->add("--emit-jax", jax_);
  files->add("--emit-sdy", sdy_);
  if (!sdy_.empty()) bridge_.emplace();
}

void EmitFiles::write(const emit::Layout& layout, const emit::MeshAxes& axes, const std::function<std::string()>& jax) {
  if (files_->wanted("--emit-sdy") && layout.model().sums_combined()) {
    throw Error(ErrorKind::kUsage, "--emit-sdy writes every partial sum apart, and the plan combines them",
                "write it with --emit-hlo, or plan with --sums apart");
  }
  if (files_->wanted("--emit-jax") && layout.model().sums_combined()) {
    log_warning("--emit-jax cannot say that partial sums are combined: XLA reduces each by itself; --emit-hlo says it");
  }
  std::string hlo;
  if (files_->wanted("--emit-hlo") || files_->wanted("--emit-sdy")) hlo = emit::emit_hlo(layout);
  if (files_->wanted("--emit-hlo")) files_->write("--emit-hlo", hlo);
  if (files_->wanted("--emit-jax")) files_->write("--emit-jax", jax());
  if (files_->wanted("--emit-sdy")) files_->write("--emit-sdy", bridge_->translate(hlo, axes));
}

}  // namespace automap::search
