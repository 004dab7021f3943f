// CBC behind its C interface. It is opened when it is asked for: it brings LAPACK along, which takes longer to start
// than most of our commands take, and a program that was built with it runs where it is not installed.
#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "plan/systems/placement/milp.h"

#ifdef AUTOMAP_WITH_CBC
#include <coin/Cbc_C_Interface.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#endif

namespace automap::placement {
namespace {

constexpr const char* kInstall = "scripts/install_dependencies.sh --milp installs it; --algorithm dp needs none";

#ifdef AUTOMAP_WITH_CBC

// Bounds of Cbc_Model beyond this number are infinite.
constexpr double kCbcInfinite = 1e30;

// The functions that we call, from a library that may not be there.
struct CbcLibrary {
  decltype(&Cbc_newModel) new_model = nullptr;
  decltype(&Cbc_deleteModel) delete_model = nullptr;
  decltype(&Cbc_loadProblem) load_problem = nullptr;
  decltype(&Cbc_setInteger) set_integer = nullptr;
  decltype(&Cbc_setParameter) set_parameter = nullptr;
  decltype(&Cbc_setMIPStartI) set_start = nullptr;
  decltype(&Cbc_solve) solve = nullptr;
  decltype(&Cbc_status) status = nullptr;
  decltype(&Cbc_isProvenInfeasible) proven_infeasible = nullptr;
  decltype(&Cbc_isProvenOptimal) proven_optimal = nullptr;
  decltype(&Cbc_bestSolution) best_solution = nullptr;
  decltype(&Cbc_getBestPossibleObjValue) bound = nullptr;
  decltype(&Cbc_isInitialSolveProvenPrimalInfeasible) relaxation_infeasible = nullptr;
  std::string missing;

  CbcLibrary() {
    void* library = dlopen("libCbcSolver.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      missing = "the solver CBC is not installed (libCbcSolver.so.3 is not there)";
      return;
    }
    const auto find = [&](auto* function, const char* name) {
      *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, name));
      if (*function == nullptr && missing.empty())
        missing = "the solver CBC that is installed has no " + std::string(name);
    };
    find(&new_model, "Cbc_newModel");
    find(&delete_model, "Cbc_deleteModel");
    find(&load_problem, "Cbc_loadProblem");
    find(&set_integer, "Cbc_setInteger");
    find(&set_parameter, "Cbc_setParameter");
    find(&set_start, "Cbc_setMIPStartI");
    find(&solve, "Cbc_solve");
    find(&status, "Cbc_status");
    find(&proven_infeasible, "Cbc_isProvenInfeasible");
    find(&proven_optimal, "Cbc_isProvenOptimal");
    find(&best_solution, "Cbc_bestSolution");
    find(&bound, "Cbc_getBestPossibleObjValue");
    find(&relaxation_infeasible, "Cbc_isInitialSolveProvenPrimalInfeasible");
  }
};

const CbcLibrary& cbc() {
  static const CbcLibrary library;
  return library;
}

// CBC and CLP write lines to standard output whatever their log level; ours is for results.
class StandardOutputAside {
 public:
  StandardOutputAside() {
    std::fflush(stdout);
    saved_ = dup(STDOUT_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) {
      dup2(nowhere, STDOUT_FILENO);
      close(nowhere);
    }
  }
  ~StandardOutputAside() {
    std::fflush(stdout);
    if (saved_ < 0) return;
    dup2(saved_, STDOUT_FILENO);
    close(saved_);
  }
  StandardOutputAside(const StandardOutputAside&) = delete;
  StandardOutputAside& operator=(const StandardOutputAside&) = delete;

 private:
  int saved_;
};

double bounded(double value) {
  return std::min(kCbcInfinite, std::max(-kCbcInfinite, value));
}

#endif

}  // namespace

#ifdef AUTOMAP_WITH_CBC

class CbcRun {
 public:
  explicit CbcRun(const Milp& milp) : milp_(milp), model_(cbc().new_model()) {
    if (model_ == nullptr) throw Error(ErrorKind::kMemory, "the solver CBC has no room for its model");
    load();
  }
  ~CbcRun() { cbc().delete_model(model_); }
  CbcRun(const CbcRun&) = delete;
  CbcRun& operator=(const CbcRun&) = delete;

  MilpAnswer run(const std::vector<std::pair<int, double>>& start, const MilpLimits& limits) {
    set("logLevel", "0");
    set("ratioGap", std::to_string(limits.gap));
    if (std::isfinite(limits.seconds)) set("sec", std::to_string(limits.seconds));
    if (!start.empty()) {
      std::vector<int> columns;
      std::vector<double> values;
      for (const auto& [column, value] : start) {
        columns.push_back(column);
        values.push_back(value);
      }
      cbc().set_start(model_, static_cast<int>(start.size()), columns.data(), values.data());
    }
    cbc().solve(model_);
    MilpAnswer out;
    if (const double* best = cbc().best_solution(model_); best != nullptr) {
      out.values.assign(best, best + milp_.columns());
    }
    const bool infeasible = cbc().proven_infeasible(model_) || cbc().relaxation_infeasible(model_);
    out.end = !out.values.empty() && cbc().proven_optimal(model_) ? MilpAnswer::End::kSolved
              : out.values.empty() && infeasible                  ? MilpAnswer::End::kInfeasible
                                                                  : MilpAnswer::End::kTime;
    const double bound = cbc().bound(model_);
    if (out.end != MilpAnswer::End::kInfeasible && bound > -kCbcInfinite && bound < kCbcInfinite) out.bound = bound;
    // CBC may then report the bound of a node that it no longer had to look at.
    if (out.end == MilpAnswer::End::kSolved) {
      double value = 0;
      for (std::size_t c = 0; c < out.values.size(); ++c) value += milp_.cost_[c] * out.values[c];
      out.bound = std::max(out.bound, value - limits.gap * std::abs(value));
    }
    return out;
  }

 private:
  void set(const char* name, const std::string& value) { cbc().set_parameter(model_, name, value.c_str()); }

  // CBC wants columns with their rows.
  void load() {
    const auto columns = static_cast<std::size_t>(milp_.columns());
    std::vector<int> starts(columns + 1, 0);
    for (const auto& row : milp_.row_terms_) {
      for (const auto& term : row) ++starts[static_cast<std::size_t>(term.first) + 1];
    }
    for (std::size_t c = 0; c < columns; ++c) starts[c + 1] += starts[c];
    std::vector<int> next(starts.begin(), starts.end() - 1), rows(static_cast<std::size_t>(starts.back()));
    std::vector<double> factors(rows.size());
    for (std::size_t r = 0; r < milp_.row_terms_.size(); ++r) {
      for (const auto& [column, factor] : milp_.row_terms_[r]) {
        const auto place = static_cast<std::size_t>(next[static_cast<std::size_t>(column)]++);
        rows[place] = static_cast<int>(r);
        factors[place] = factor;
      }
    }
    std::vector<double> lower, upper, row_lower, row_upper;
    for (const double v : milp_.lower_) lower.push_back(bounded(v));
    for (const double v : milp_.upper_) upper.push_back(bounded(v));
    for (const double v : milp_.row_lower_) row_lower.push_back(bounded(v));
    for (const double v : milp_.row_upper_) row_upper.push_back(bounded(v));
    cbc().load_problem(model_, milp_.columns(), milp_.rows(), starts.data(), rows.data(), factors.data(), lower.data(),
                       upper.data(), milp_.cost_.data(), row_lower.data(), row_upper.data());
    for (int c = 0; c < milp_.columns(); ++c) {
      if (milp_.integer_[static_cast<std::size_t>(c)]) cbc().set_integer(model_, c);
    }
  }

  const Milp& milp_;
  Cbc_Model* model_;
};

std::string milp_solver_missing() {
  return cbc().missing;
}

MilpAnswer solve(const Milp& milp, const std::vector<std::pair<int, double>>& start, const MilpLimits& limits) {
  if (!cbc().missing.empty()) throw Error(ErrorKind::kUsage, cbc().missing, kInstall);
  const StandardOutputAside aside;
  return CbcRun(milp).run(start, limits);
}

#else

std::string milp_solver_missing() {
  return "AutoMap was built without the solver CBC";
}

MilpAnswer solve(const Milp&, const std::vector<std::pair<int, double>>&, const MilpLimits&) {
  throw Error(ErrorKind::kUsage, milp_solver_missing(), std::string(kInstall) + "; then build again");
}

#endif

}  // namespace automap::placement
