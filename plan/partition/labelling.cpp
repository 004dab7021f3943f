#include "plan/partition/labelling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <queue>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "common/base/numbers.h"

namespace automap::partition {
namespace {

constexpr double kLabelRounding = 1e-9;
// A unit of work (common/base/work.h) per entry and function of a table.
constexpr std::int64_t kPerEntry = 1;
constexpr std::int64_t kPerSite = 200;
// To copy a problem and to order its sites, per site and pair.
constexpr std::int64_t kPerOrdered = 1500;
// Prices of memory that are tried at one node.
constexpr int kMostPrices = 40;
// Memory that differs by less is the same.
constexpr double kLeastMemory = 1e-3;

// Few sites, ascending.
using Sites = std::vector<std::int32_t>;
void insert(std::int32_t site, Sites* sites) {
  const auto place = std::lower_bound(sites->begin(), sites->end(), site);
  if (place == sites->end() || *place != site) sites->insert(place, site);
}
void erase(std::int32_t site, Sites* sites) {
  const auto place = std::lower_bound(sites->begin(), sites->end(), site);
  if (place != sites->end() && *place == site) sites->erase(place);
}

// True if a cost is above a bound by more than rounding.
bool above(double cost, double bound) {
  return cost > bound + kLabelRounding * std::max(1.0, std::abs(bound));
}

// A function of some sites, as a table: row by row, the last site of the scope varies fastest.
struct Table {
  Sites scope;
  std::int32_t values = -1;  // of Contents; filled when it is run
};

// The contents of tables. A model's layers are mostly alike, and so are their tables: equal tables are kept once, and
// minimized ones are found by the tables that they were made from.
class Contents {
 public:
  const std::vector<double>& operator[](std::int32_t id) const { return values_[at(id)]; }

  // Adds a table of the problem itself: equal values have one number.
  std::int32_t intern(std::vector<double> values) {
    const auto [found, added] = known_.try_emplace(std::move(values), static_cast<std::int32_t>(values_.size()));
    if (added) values_.push_back(found->first);
    given_ = values_.size();
    return found->second;
  }
  // Finds a minimized table by its key.
  std::int32_t find(const std::vector<std::int64_t>& key) const {
    const auto found = minimized_.find(key);
    return found == minimized_.end() ? -1 : found->second;
  }
  std::int32_t add(std::vector<std::int64_t> key, std::vector<double> values) {
    values_.push_back(std::move(values));
    return minimized_.emplace(std::move(key), static_cast<std::int32_t>(values_.size()) - 1).first->second;
  }
  void forget_minimized() {
    minimized_.clear();
    values_.resize(given_);
  }

 private:
  std::map<std::vector<double>, std::int32_t> known_;
  std::map<std::vector<std::int64_t>, std::int32_t> minimized_;
  std::deque<std::vector<double>> values_;  // which stay where they are
  std::size_t given_ = 0;
};

// The order in which sites are eliminated, and the tables that arise: of a graph, whatever the costs of labels are.
class Elimination {
 public:
  Elimination(const LabellingProblem& problem, std::int64_t most_entries) : problem_(problem), most_(most_entries) {
    read_pairs();
    plan();
  }

  bool exact() const { return exact_; }
  std::int32_t width() const { return width_; }
  std::int64_t units() const { return units_; }  // of the last run

  // With memory at a price per byte. The bound includes the price of the labels' memory, not the limit.
  double run(double price, std::vector<std::int32_t>* labels) {
    contents_.forget_minimized();
    units_ = kPerSite * static_cast<std::int64_t>(steps_.size());
    double bound = 0;
    for (const Step& step : steps_) {
      for (std::size_t part = 0; part < step.parts.size(); ++part) bound += minimize(step, part, price);
    }
    read_back(price, labels);
    return bound;
  }

 private:
  // A function, and by how much the place in its table moves with the label of the site that is eliminated, and with
  // those of the result's scope.
  struct Function {
    std::int32_t table = 0;  // index of tables_
    std::size_t of_site = 0;
    std::vector<std::size_t> strides;
  };
  // The functions of a site that are minimized together, and the table that comes of it.
  struct Part {
    std::vector<Function> functions;
    bool unary = false;       // the site's own costs are in it
    std::int32_t result = 0;  // index of tables_
  };
  struct Step {
    std::int32_t site = 0;
    std::vector<Part> parts;
  };

  std::int32_t labels_of(std::int32_t site) const {
    return static_cast<std::int32_t>(problem_.sites[at(site)].cost.size());
  }
  double own_cost(std::int32_t site, std::int32_t label, double price) const {
    const LabellingProblem::Site& s = problem_.sites[at(site)];
    return s.cost[at(label)] + (price > 0 && !s.memory.empty() ? price * s.memory[at(label)] : 0);
  }

  void read_pairs() {
    functions_of_.resize(problem_.sites.size());
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> known;
    std::vector<std::vector<double>> sums;  // by table
    for (const LabellingProblem::Pair& pair : problem_.pairs) {
      const bool turned = pair.a > pair.b;
      const std::int32_t a = turned ? pair.b : pair.a, b = turned ? pair.a : pair.b;
      const auto [found, added] = known.try_emplace({a, b}, static_cast<std::int32_t>(tables_.size()));
      if (added) {
        tables_.push_back({{a, b}, -1});
        sums.emplace_back(at(labels_of(a)) * at(labels_of(b)), 0);
        functions_of_[at(a)].push_back(found->second);
        functions_of_[at(b)].push_back(found->second);
      }
      std::vector<double>& values = sums[at(found->second)];
      for (std::int32_t i = 0; i < labels_of(a); ++i) {
        for (std::int32_t j = 0; j < labels_of(b); ++j) {
          values[at(i * labels_of(b) + j)] +=
              turned ? pair.cost[at(j * labels_of(a) + i)] : pair.cost[at(i * labels_of(b) + j)];
        }
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) tables_[i].values = contents_.intern(std::move(sums[i]));
  }

  std::int64_t entries(const Sites& scope) const {
    std::int64_t product = 1;
    for (const std::int32_t site : scope) {
      product *= labels_of(site);
      if (product > most_ * 1024) break;
    }
    return product;
  }

  // The smallest table first; among equals the first site.
  void plan() {
    const std::size_t n = problem_.sites.size();
    std::vector<Sites> neighbours(n);
    for (const Table& table : tables_) {
      insert(table.scope[1], &neighbours[at(table.scope[0])]);
      insert(table.scope[0], &neighbours[at(table.scope[1])]);
    }
    using Entry = std::pair<std::int64_t, std::int32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue;
    std::vector<std::int64_t> size(n);
    const auto push = [&](std::int32_t site) {
      size[at(site)] = entries(neighbours[at(site)]) * labels_of(site);
      queue.emplace(size[at(site)], site);
    };
    for (std::size_t i = 0; i < n; ++i) push(static_cast<std::int32_t>(i));
    std::vector<char> gone(n, 0);
    while (!queue.empty()) {
      const auto [entry, site] = queue.top();
      queue.pop();
      if (gone[at(site)] != 0 || entry != size[at(site)]) continue;
      gone[at(site)] = 1;
      eliminate(site, &neighbours, gone);
      for (const std::int32_t other : neighbours[at(site)]) {
        erase(site, &neighbours[at(other)]);
        push(other);
      }
    }
  }

  void eliminate(std::int32_t site, std::vector<Sites>* neighbours, const std::vector<char>& gone) {
    std::vector<std::int32_t> functions;
    for (const std::int32_t f : functions_of_[at(site)]) {
      const Sites& scope = tables_[at(f)].scope;
      const bool live = std::none_of(scope.begin(), scope.end(),
                                     [&](std::int32_t other) { return other != site && gone[at(other)] != 0; });
      if (live) functions.push_back(f);
    }
    // The widest first, so that narrow ones find room beside them.
    std::stable_sort(functions.begin(), functions.end(), [&](std::int32_t a, std::int32_t b) {
      return tables_[at(a)].scope.size() > tables_[at(b)].scope.size();
    });
    Step step;
    step.site = site;
    std::vector<Sites> scopes;
    for (const std::int32_t f : functions) {
      const Sites& scope = tables_[at(f)].scope;
      std::size_t part = 0;
      for (; part < scopes.size(); ++part) {
        Sites together;
        std::set_union(scopes[part].begin(), scopes[part].end(), scope.begin(), scope.end(),
                       std::back_inserter(together));
        if (entries(together) > most_) continue;
        scopes[part] = std::move(together);
        break;
      }
      if (part == scopes.size()) {
        scopes.push_back(scope);
        step.parts.emplace_back();
      }
      step.parts[part].functions.push_back({f, 0, {}});
    }
    if (step.parts.empty()) {
      step.parts.emplace_back();
      scopes.push_back({site});
    }
    step.parts[0].unary = true;
    exact_ = exact_ && step.parts.size() == 1;
    for (std::size_t part = 0; part < step.parts.size(); ++part) {
      erase(site, &scopes[part]);
      width_ = std::max(width_, static_cast<std::int32_t>(scopes[part].size()));
      const auto result = static_cast<std::int32_t>(tables_.size());
      step.parts[part].result = result;
      find_strides(site, scopes[part], &step.parts[part].functions);
      for (const std::int32_t a : scopes[part]) {
        functions_of_[at(a)].push_back(result);
        for (const std::int32_t b : scopes[part]) {
          if (a != b) insert(b, &(*neighbours)[at(a)]);
        }
      }
      tables_.push_back({std::move(scopes[part]), -1});
    }
    steps_.push_back(std::move(step));
  }

  // In an order that is the same for layers that are alike.
  void find_strides(std::int32_t site, const Sites& scope, std::vector<Function>* functions) const {
    for (Function& function : *functions) {
      const Table& table = tables_[at(function.table)];
      function.strides.assign(scope.size(), 0);
      std::size_t stride = 1;
      for (std::size_t k = table.scope.size(); k-- > 0;) {
        if (table.scope[k] == site) {
          function.of_site = stride;
        } else {
          const auto place = std::lower_bound(scope.begin(), scope.end(), table.scope[k]) - scope.begin();
          function.strides[static_cast<std::size_t>(place)] = stride;
        }
        stride *= at(labels_of(table.scope[k]));
      }
    }
    std::stable_sort(functions->begin(), functions->end(), [](const Function& a, const Function& b) {
      return std::tie(a.of_site, a.strides) < std::tie(b.of_site, b.strides);
    });
  }

  std::vector<double> own_costs(const Step& step, const Part& part, double price) const {
    std::vector<double> own(at(labels_of(step.site)), 0);
    for (std::size_t label = 0; part.unary && label < own.size(); ++label) {
      own[label] = own_cost(step.site, static_cast<std::int32_t>(label), price);
    }
    return own;
  }

  // All that the part's table depends on.
  std::vector<std::int64_t> key_of(const Part& part, const std::vector<double>& own) const {
    const Sites& scope = tables_[at(part.result)].scope;
    std::vector<std::int64_t> key = {static_cast<std::int64_t>(own.size()), static_cast<std::int64_t>(scope.size())};
    for (const double cost : own) {
      std::int64_t bits = 0;
      std::memcpy(&bits, &cost, sizeof bits);
      key.push_back(bits);
    }
    for (const std::int32_t site : scope) key.push_back(labels_of(site));
    for (const Function& function : part.functions) {
      key.push_back(tables_[at(function.table)].values);
      key.push_back(static_cast<std::int64_t>(function.of_site));
      key.insert(key.end(), function.strides.begin(), function.strides.end());
    }
    return key;
  }

  // Fills the part's table. Returns its value where it depends on no other site, else 0.
  double minimize(const Step& step, std::size_t number, double price) {
    const Part& part = step.parts[number];
    Table& result = tables_[at(part.result)];
    const std::vector<double> own = own_costs(step, part, price);
    std::vector<std::int64_t> key = key_of(part, own);
    result.values = contents_.find(key);
    if (result.values < 0) {
      std::vector<double> values = minimum(part, own);
      units_ += kPerEntry * static_cast<std::int64_t>(values.size() * own.size() * (part.functions.size() + 1));
      result.values = contents_.add(std::move(key), std::move(values));
    }
    return result.scope.empty() ? contents_[result.values][0] : 0;
  }

  std::vector<double> minimum(const Part& part, const std::vector<double>& own) const {
    const Sites& scope = tables_[at(part.result)].scope;
    struct Reader {
      const double* values;  // where it stands, while the labels of the scope are counted through
      const Function* function;
    };
    std::vector<Reader> all;
    for (const Function& function : part.functions) {
      all.push_back({contents_[tables_[at(function.table)].values].data(), &function});
    }
    std::size_t size = 1;
    for (const std::int32_t site : scope) size *= at(labels_of(site));
    std::vector<double> values(size);
    std::vector<std::int32_t> digits(scope.size(), 0);
    for (std::size_t i = 0; i < size; ++i) {
      double best = kInfinity;
      for (std::size_t label = 0; label < own.size(); ++label) {
        double sum = own[label];
        for (const Reader& reader : all) sum += reader.values[label * reader.function->of_site];
        best = std::min(best, sum);
      }
      values[i] = best;
      for (std::size_t k = scope.size(); k-- > 0;) {
        const bool carry = ++digits[k] == labels_of(scope[k]);
        for (Reader& reader : all) {
          const std::size_t stride = reader.function->strides[k];
          reader.values = carry ? reader.values - stride * at(digits[k] - 1) : reader.values + stride;
        }
        if (!carry) break;
        digits[k] = 0;
      }
    }
    return values;
  }

  // The labels behind the minimum, last site first.
  void read_back(double price, std::vector<std::int32_t>* labels) const {
    labels->assign(problem_.sites.size(), 0);
    for (std::size_t s = steps_.size(); s-- > 0;) {
      const Step& step = steps_[s];
      double best = kInfinity;
      std::int32_t chosen = 0;
      for (std::int32_t label = 0; label < labels_of(step.site); ++label) {
        (*labels)[at(step.site)] = label;
        double sum = own_cost(step.site, label, price);
        for (const Part& part : step.parts) {
          for (const Function& function : part.functions) sum += value_at(tables_[at(function.table)], *labels);
        }
        if (sum < best) {
          best = sum;
          chosen = label;
        }
      }
      (*labels)[at(step.site)] = chosen;
    }
  }

  double value_at(const Table& table, const std::vector<std::int32_t>& labels) const {
    std::size_t place = 0;
    for (const std::int32_t site : table.scope) place = place * at(labels_of(site)) + at(labels[at(site)]);
    return contents_[table.values][place];
  }

  const LabellingProblem& problem_;
  std::int64_t most_;
  std::vector<Table> tables_;
  Contents contents_;
  std::vector<std::vector<std::int32_t>> functions_of_;  // by site, indices of tables_
  std::vector<Step> steps_;
  bool exact_ = true;
  std::int32_t width_ = 0;
  std::int64_t units_ = 0;
};

// A part of the search tree: some labels are no longer allowed.
struct Node {
  LabellingProblem problem;
  std::vector<std::vector<std::int32_t>> label_of;  // by site: the outer labels
  double bound = -kInfinity;
  std::int32_t branch_site = -1;  // -1: solved
};

class Search {
 public:
  Search(const LabellingProblem& problem, const LabellingOptions& options, Work& work)
      : problem_(problem), options_(options), work_(work) {}

  Labelling run() {
    auto root = std::make_unique<Node>();
    root->problem = problem_;
    for (const LabellingProblem::Site& site : problem_.sites) {
      root->label_of.emplace_back(site.cost.size());
      for (std::size_t label = 0; label < site.cost.size(); ++label) {
        root->label_of.back()[label] = static_cast<std::int32_t>(label);
      }
    }
    look(*root);
    const auto later = [](const std::unique_ptr<Node>& a, const std::unique_ptr<Node>& b) {
      return a->bound > b->bound;
    };
    std::vector<std::unique_ptr<Node>> open;
    const auto push = [&](std::unique_ptr<Node> node) {
      if (node->branch_site < 0 || !above(best_.cost, node->bound)) return;
      open.push_back(std::move(node));
      std::push_heap(open.begin(), open.end(), later);
    };
    push(std::move(root));
    while (!open.empty() && !work_.over()) {
      std::pop_heap(open.begin(), open.end(), later);
      const std::unique_ptr<Node> node = std::move(open.back());
      open.pop_back();
      if (!above(best_.cost, node->bound)) {
        open.clear();
        break;
      }
      const std::size_t labels = node->problem.sites[at(node->branch_site)].cost.size();
      for (std::size_t label = 0; label < labels; ++label) push(child(*node, label));
    }
    // An open node may be as cheap as its bound; a node that was left out is no cheaper than the best.
    best_.bound = best_.cost;
    for (const std::unique_ptr<Node>& node : open) best_.bound = std::min(best_.bound, node->bound);
    best_.proven = best_.cost < kInfinity && !above(best_.cost, best_.bound);
    return best_;
  }

 private:
  std::unique_ptr<Node> child(const Node& parent, std::size_t label) {
    auto node = std::make_unique<Node>();
    node->problem = parent.problem;
    node->label_of = parent.label_of;
    const std::int32_t site = parent.branch_site;
    LabellingProblem::Site& fixed = node->problem.sites[at(site)];
    const std::size_t labels = fixed.cost.size();
    fixed.cost = {fixed.cost[label]};
    if (!fixed.memory.empty()) fixed.memory = {fixed.memory[label]};
    node->label_of[at(site)] = {parent.label_of[at(site)][label]};
    std::vector<LabellingProblem::Pair> pairs;
    for (LabellingProblem::Pair& pair : node->problem.pairs) {
      if (pair.a != site && pair.b != site) {
        pairs.push_back(std::move(pair));
        continue;
      }
      // The other site pays it by itself.
      const std::int32_t other = pair.a == site ? pair.b : pair.a;
      std::vector<double>& cost = node->problem.sites[at(other)].cost;
      for (std::size_t i = 0; i < cost.size(); ++i) {
        cost[i] += pair.a == site ? pair.cost[label * cost.size() + i] : pair.cost[i * labels + label];
      }
    }
    node->problem.pairs = std::move(pairs);
    node->bound = parent.bound;
    look(*node);
    return node;
  }

  // Bounds a node, offers the labellings that it meets, and says where to branch.
  void look(Node& node) {
    ++best_.nodes;
    work_.spend(kPerOrdered * static_cast<std::int64_t>(node.problem.sites.size() + node.problem.pairs.size()));
    Elimination elimination(node.problem, options_.most_entries);
    best_.width = std::max(best_.width, elimination.width());
    struct Point {
      std::vector<std::int32_t> labels;
      double cost = 0, memory = 0, bound = 0;  // bound: of cost + price * memory
    };
    const auto ask = [&](double price) {
      Point point;
      point.bound = elimination.run(price, &point.labels);
      work_.spend(elimination.units());
      point.cost = labelling_cost(node.problem, point.labels, &point.memory);
      offer(node, point.labels, point.cost, point.memory);
      return point;
    };
    const double limit = node.problem.memory_limit;
    Point over = ask(0);
    node.bound = std::max(node.bound, over.bound);
    if (over.bound == kInfinity) return;
    const bool fits = over.memory <= limit;
    if (fits && !above(over.cost, over.bound)) return;
    node.branch_site = fits ? widest_site(node) : -1;
    if (fits) return;
    // A price at which memory fits, then the best price between. At the last one the least difference of memory is
    // worth more than all else.
    const double last_price = (spread(node.problem) + 1) / kLeastMemory;
    const double scale = std::isfinite(over.cost) ? std::abs(over.cost) + 1 : 1;
    double price = std::min(last_price, scale / std::max(over.memory, 1.0));
    Point under;
    while (true) {
      under = ask(price);
      node.bound = std::max(node.bound, under.bound - price * limit);
      if (under.memory <= limit || !above(best_.cost, node.bound) || work_.over()) break;
      if (price >= last_price) {
        if (elimination.exact()) node.bound = kInfinity;
        break;
      }
      price = std::min(8 * price, last_price);
    }
    if (!above(best_.cost, node.bound)) return;
    if (under.memory > limit) {
      node.branch_site = differing_site(node, over.labels, under.labels);
      return;
    }
    for (int i = 0; i < kMostPrices && !work_.over(); ++i) {
      if (!(over.memory > under.memory) || !(under.cost > over.cost) || !std::isfinite(under.cost)) break;
      price = (under.cost - over.cost) / (over.memory - under.memory);
      Point between = ask(price);
      const double reached = between.bound - price * limit;
      node.bound = std::max(node.bound, reached);
      if (!above(under.cost + price * under.memory, between.bound) || !above(best_.cost, node.bound)) break;
      const bool same = between.labels == over.labels || between.labels == under.labels;
      (between.memory > limit ? over : under) = std::move(between);
      if (same) break;
    }
    if (!above(best_.cost, node.bound)) return;
    node.branch_site = differing_site(node, over.labels, under.labels);
  }

  // No labelling costs more than another by more than this.
  static double spread(const LabellingProblem& problem) {
    double sum = 0;
    const auto add = [&sum](const std::vector<double>& cost) {
      double least = kInfinity, most = -kInfinity;
      for (const double c : cost) {
        if (c == kInfinity) continue;
        least = std::min(least, c);
        most = std::max(most, c);
      }
      if (most > least) sum += most - least;
    };
    for (const LabellingProblem::Site& site : problem.sites) add(site.cost);
    for (const LabellingProblem::Pair& pair : problem.pairs) add(pair.cost);
    return sum;
  }

  // The site where memory differs most between a labelling that is too large and one that fits.
  static std::int32_t differing_site(const Node& node, const std::vector<std::int32_t>& a,
                                     const std::vector<std::int32_t>& b) {
    std::int32_t found = -1;
    double most = -1;
    for (std::size_t i = 0; i < node.problem.sites.size(); ++i) {
      const LabellingProblem::Site& site = node.problem.sites[i];
      if (site.cost.size() < 2) continue;
      const double difference =
          site.memory.empty() || a[i] == b[i] ? 0 : std::abs(site.memory[at(a[i])] - site.memory[at(b[i])]);
      if (difference > most) {
        most = difference;
        found = static_cast<std::int32_t>(i);
      }
    }
    return found;
  }

  // The site with the most neighbours.
  static std::int32_t widest_site(const Node& node) {
    std::vector<std::int32_t> degree(node.problem.sites.size(), 0);
    for (const LabellingProblem::Pair& pair : node.problem.pairs) {
      ++degree[at(pair.a)];
      ++degree[at(pair.b)];
    }
    std::int32_t found = -1;
    for (std::size_t i = 0; i < degree.size(); ++i) {
      if (node.problem.sites[i].cost.size() > 1 && (found < 0 || degree[i] > degree[at(found)])) {
        found = static_cast<std::int32_t>(i);
      }
    }
    return found;
  }

  void offer(const Node& node, const std::vector<std::int32_t>& labels, double cost, double memory) {
    if (!(cost < best_.cost) || memory > problem_.memory_limit) return;
    best_.cost = cost;
    best_.memory = memory;
    best_.labels.resize(labels.size());
    for (std::size_t i = 0; i < labels.size(); ++i) best_.labels[i] = node.label_of[i][at(labels[i])];
  }

  const LabellingProblem& problem_;
  const LabellingOptions& options_;
  Work& work_;
  Labelling best_;
};

}  // namespace

double labelling_cost(const LabellingProblem& problem, const std::vector<std::int32_t>& labels, double* memory) {
  double cost = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const LabellingProblem::Site& site = problem.sites[i];
    cost += site.cost[at(labels[i])];
    if (memory != nullptr && !site.memory.empty()) *memory += site.memory[at(labels[i])];
  }
  for (const LabellingProblem::Pair& pair : problem.pairs) {
    const auto labels_of_b = problem.sites[at(pair.b)].cost.size();
    cost += pair.cost[at(labels[at(pair.a)]) * labels_of_b + at(labels[at(pair.b)])];
  }
  return cost;
}

Labelling solve_labelling(const LabellingProblem& problem, const LabellingOptions& options, Work& work) {
  const auto sites = static_cast<std::int32_t>(problem.sites.size());
  for (const LabellingProblem::Site& site : problem.sites) {
    AM_CHECK(!site.cost.empty() && (site.memory.empty() || site.memory.size() == site.cost.size()));
  }
  for (const LabellingProblem::Pair& pair : problem.pairs) {
    AM_CHECK(pair.a >= 0 && pair.b >= 0 && pair.a < sites && pair.b < sites && pair.a != pair.b);
    AM_CHECK(pair.cost.size() == problem.sites[at(pair.a)].cost.size() * problem.sites[at(pair.b)].cost.size());
  }
  return Search(problem, options, work).run();
}

}  // namespace automap::partition
