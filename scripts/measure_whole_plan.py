#!/usr/bin/env python3
"""The whole plan beside published planners on the same costs: writes docs/results/whole-plan.md.

  scripts/measure_whole_plan.py            # all fixtures that are training steps x five clusters, and the training
                                           # modules of $AUTOMAP_CORPUS x three; about half an hour
  scripts/measure_whole_plan.py --quick    # a few of them, to standard output

Needs the target bench-whole_plan_rivals of a Release build.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
FIXTURES = SOURCE / "fixtures" / "hlo"
CLUSTERS = ["config-a", "config-b", "config-c", "h100-2x8", "a100-4x8"]
MODELS = ["vgg19", "resnet50", "unet", "gpt2", "bert_large", "bert48", "t5_6_6", "t5_24_24", "transformer_bf16", "transformer_scan",
          "grouped_query", "moe_small"]
CORPUS_CLUSTERS = ["config-c", "h100-2x8", "a100-4x8"]
QUICK_MODELS, QUICK_CLUSTERS = ["vgg19", "transformer_scan"], ["config-b"]

PAGE = """# The whole plan beside published planners

Made by `scripts/measure_whole_plan.py`. Every planner gets the same profile, widths, ZeRO levels, recomputation and batch (the default, 16 times the
module's own), and every plan is judged by our simulation with as much in flight as its memory allows. ms of a step (seconds of search; machines differ), and the
rival's step over ours.

- **Alpa**, **Galvatron**, **Aceso**: stand-ins (`plan/systems/rivals`) on our costs, not the published programs. Alpa: stages of at most 24 clusters of layers on 1, 2, 4, ... devices of a
  server or whole servers, least sum of stages + (M - 1) times the longest, no transfers in the objective. Galvatron: equal groups of devices, up to 64 units, a variant per
  stage, transfers counted. Aceso (EuroSys 2024): from a balanced start for every number of stages it relieves the bottleneck stage by moving operators or devices, up to 7
  moves in a row, transfers counted; width and split are searched in full instead of moved, each stage always takes its best variant that fits, and the effort is a number of
  configurations, not of seconds. All run for every width and split of the batch, and the plan that is *simulated* shortest counts: by their own objectives alone
  they would be further behind. All use all devices; ours may leave some free.
- **Megatron**: the best even grid of data x tensor x pipeline parallelism over whole layers (`--sweep`).
- Ours: without the corners that `--explore` adds, which take a shorter grid as the plan. Nor with what `automap-infer` plans
  besides where memory decides, everything whole between split products (llama3_8b_train_fsdp8 on config-c: 488 s instead of 1060). Of plans within 0.1 %% our planner prefers the one whose stages shard and recompute
  less: a rival that is shorter by less than that is left.
- **Ours without the policy**: the same planner with the same work, whose walks over stages are ranked by rollouts instead of the shipped policy.

## Fixtures

%s

## Training modules that others wrote

%s
"""

NO_CORPUS = "Not measured: AUTOMAP_CORPUS was not set."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=SOURCE / "build" / "release", type=Path, help="folder of a Release build")
    parser.add_argument("--quick", action="store_true", help="a few rows, to standard output")
    options = parser.parse_args()
    bench = options.build / "bench" / "bench-whole_plan_rivals"
    if not bench.exists():
        sys.exit(f"measure_whole_plan.py: {bench} is missing: build with -DAUTOMAP_BUILD_BENCH=ON")
    def table(models, clusters):
        done = subprocess.run([bench, *models, "--", *clusters], check=True, capture_output=not options.quick, text=True)
        return (done.stdout or "").replace(".hlo.gz", "").replace(".before_opt.hlo", "").strip()

    models, clusters = (QUICK_MODELS, QUICK_CLUSTERS) if options.quick else (MODELS, CLUSTERS)
    fixtures = table([FIXTURES / f"{model}.hlo.gz" for model in models], clusters)
    if options.quick:
        return
    corpus = os.environ.get("AUTOMAP_CORPUS")
    found = sorted(path for folder in ("train_1dev", "train_spmd") for path in Path(corpus, "hlo", folder).iterdir()
                   if path.name.endswith(".hlo")) if corpus else []
    if not found:
        print(f"measure_whole_plan.py: {NO_CORPUS}", file=sys.stderr)
    (SOURCE / "docs" / "results" / "whole-plan.md").write_text(PAGE % (fixtures, table(found, CORPUS_CLUSTERS) if found else NO_CORPUS))


if __name__ == "__main__":
    main()
