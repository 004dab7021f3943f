// The place of this process among the processes of one training run, as the launcher states it in the environment. No
// LibTorch.
//
//   by hand    RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (29500 when not set)
//   torchrun   the same; where torchrun itself listens at MASTER_PORT, rank 0 listens at the port behind it
//   srun       SLURM_PROCID, SLURM_STEP_NUM_TASKS; rank 0's machine is the first of SLURM_STEP_NODELIST, its port
//              20000 + the job's number modulo 10000
//   mpirun     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE (Open MPI) or PMI_RANK, PMI_SIZE (MPICH); MASTER_ADDR
//
// The first pair that is set counts; MASTER_ADDR and MASTER_PORT always do.
#pragma once

#include <functional>
#include <string>

#include "models/rank_link.h"

namespace automap::train {

// Returns the value of a variable, nullptr: not set. It is ::getenv, or a test's.
using Environment = std::function<const char*(const char* name)>;

// Returns one process alone when no variable says otherwise. Throws Error(kConfig) naming the variable that is missing,
// no number or out of range.
models::RankPlace place_of_ranks(const Environment& environment);

// The first machine of a list as Slurm writes it: "node[03-05,9],other" gives "node03".
std::string first_host(const std::string& list);

}  // namespace automap::train
