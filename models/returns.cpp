#include "models/returns.h"

#include <cmath>

#include "common/base/check.h"

namespace automap::models {

ReturnTarget return_target(int decisions, double y, int decision, int n_step, double gamma) {
  const int last = decisions - 1;
  AM_CHECK(decision >= 0 && decision <= last && n_step >= 0);
  ReturnTarget target;
  if (n_step == 0 || n_step > last - decision) {
    target.reward_y = std::pow(gamma, last - decision) * y;
  } else {
    target.bootstrap = decision + n_step;
    target.discount = std::pow(gamma, n_step);
  }
  return target;
}

}  // namespace automap::models
