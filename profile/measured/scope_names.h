// Maps paths of modules in the words of frameworks to layers of a model.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace automap::measured {

// Words in lower case and numbers, each by itself: "transformer.h.3.attn" and "transformer/h_3/attn" are transformer,
// h, 3, attn. "block 17 of 48" is block, 17.
std::vector<std::string> words_of(std::string_view path);
bool is_number(std::string_view word);

// Layers of a model by their names; numbers are indices of the list that it was made from.
class LayerNames {
 public:
  explicit LayerNames(const std::vector<std::string>& names);

  // The layers of one kind, told apart by a number at the end: "encoder/layer/0", "encoder/layer/1", ...; at least two.
  // In the order of the model, ascending by their number.
  const std::vector<std::vector<int>>& kinds() const { return kinds_; }
  // Layers that are of no kind, in the order of the model.
  const std::vector<int>& outside() const { return outside_; }

  // Tells layers of the model by as many numbers behind one word as there are layers of a kind. `paths`: all there are.
  void match_numbers(const std::vector<std::string>& paths);
  // The layers that the path is in, or that are in it; none: unknown. A path with a number that fits several layers is
  // in none.
  std::vector<int> find(std::string_view path) const;
  // True if all layers of a kind were found under other words (match_numbers), or any by their own.
  bool knows_kinds() const { return !other_words_.empty(); }
  // Whether the words of a path begin with the outermost module that all layers of match_numbers() are in: net/0 of
  // net/0/block/0 and net/0/block/1.
  bool is_in_root(const std::vector<std::string>& path) const;
  std::size_t root_size() const { return root_.size(); }  // in words; 0: there is no such module

 private:
  std::vector<std::vector<std::string>> words_;
  std::vector<bool> numbered_;  // by layer: of a kind, or with a number in front of its last word
  std::vector<std::vector<int>> kinds_;
  std::vector<int> outside_;
  std::map<std::string, std::map<std::string, int>> other_words_;  // words in front of a number -> number -> layer
  std::vector<std::string> root_;                                  // empty: there is none
};

}  // namespace automap::measured
