// Targets of the Q-network from an episode: full returns (Monte-Carlo) or n steps and then the network's own estimate.
//
// The only reward, -y, comes with the last decision, and Q = -(predicted y), so a discount gamma shrinks y: the last of
// T decisions has return y, decision t has gamma^(T-1-t) y. The faithful preset uses gamma 0.6 (paper 4.6); gamma = 1
// keeps y what it says.
#pragma once

namespace automap::models {

// Target y = reward_y + discount * (least predicted y of the actions of decision `bootstrap`); bootstrap -1: no such
// term. Three decisions, y = 0.8, gamma = 0.5: Monte-Carlo 0.2, 0.4, 0.8; one step: 0.5 * next, 0.5 * next, 0.8.
struct ReturnTarget {
  double reward_y = 0;
  int bootstrap = -1;
  double discount = 0;
};

// The target of decision `decision` of the `decisions` of an episode that ended with `y`. `n_step` 0: Monte-Carlo.
ReturnTarget return_target(int decisions, double y, int decision, int n_step, double gamma);

}  // namespace automap::models
