#include "common/io/pipedream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/io/profile_file.h"

namespace automap::io {
namespace {

using pipeline::Profile;
using testing::ElementsAre;
using testing::HasSubstr;

std::string node(const std::string& id, const std::string& description, const std::string& activation = "1",
                 const std::string& forward = "1", const std::string& backward = "2", const std::string& weight = "0") {
  return id + " -- " + description + " -- forward_compute_time=" + forward + ", backward_compute_time=" + backward +
         ", activation_size=" + activation + ", parameter_size=" + weight + "\n";
}

std::string message_of(const std::string& text) {
  try {
    parse_pipedream(text, "graph.txt");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  ADD_FAILURE() << "no error for " << text;
  return "";
}

TEST(Pipedream, WorkedCase) {
  const std::string text = node("node1", "a", "10") + node("node2", "b", "20") + node("node3", "c", "30", "3", "0.5") +
                           node("node4", "d", "[15; 25.0]", "1", "2", "64.000") + "\tnode1 -- node2\n" +
                           "\tnode1 -- node3\n \tnode2 -- node4\n    node3 -- node4\r\n";
  const Profile profile = parse_pipedream(text, "some/graph.txt");
  EXPECT_THAT(profile.name, ElementsAre("node1", "node2", "node3", "node4"));
  EXPECT_THAT(profile.a_bytes, ElementsAre(10, 30, 50, 0));
  EXPECT_THAT(profile.c_ms, ElementsAre(3, 3, 3.5, 3));
  EXPECT_THAT(profile.w_bytes, ElementsAre(0, 0, 0, 64));
  EXPECT_THAT(profile.stash_bytes, ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(profile.layer, ElementsAre("a", "b", "c", "d"));
  EXPECT_DOUBLE_EQ(profile.forward_fraction, 6.0 / 12.5);
  EXPECT_EQ(profile.model, "graph.txt");
}

TEST(Pipedream, BranchesStayTogetherAndSourcesStandBeforeTheirFirstUse) {
  // x -> p1 -> p2 -> join, x -> q1 -> q2 -> join; late -> join2.
  std::string text;
  for (const char* name : {"late", "join2", "q2", "q1", "p2", "p1", "x", "join"}) text += node(name, "Layer(1, 2)");
  text +=
      "\tx -- p1\n\tx -- q1\n\tp1 -- p2\n\tq1 -- q2\n\tp2 -- join\n\tq2 -- join\n\tjoin -- join2\n\tlate -- join2\n";
  const Profile profile = parse_pipedream("\n" + text, "graph.txt");
  EXPECT_THAT(profile.name, ElementsAre("x", "p1", "p2", "q1", "q2", "join", "late", "join2"));
  EXPECT_EQ(profile.layer[0], "Layer x");  // descriptions do not tell the nodes apart
}

TEST(Pipedream, InputsAndUnusedItemsAreLeftOut) {
  const std::string text = node("node1", "Input0", "99", "5") + node("node2", "Linear(2, 2)", "7") +
                           node("node3", "__getitem__(0)", "50") + node("node4", "Loss", "1") +
                           "\tnode1 -- node2\n\tnode2 -- node3\n\tnode2 -- node4\n";
  const Profile profile = parse_pipedream(text, "graph.txt");
  EXPECT_THAT(profile.name, ElementsAre("node2", "node4"));
  EXPECT_THAT(profile.a_bytes, ElementsAre(7, 0));
}

TEST(Pipedream, DescriptionsMayHoldAnythingAndStagesAreIgnored) {
  const std::string text =
      "node1 -- A -- B(x=1, y=[2; 3]) -- forward_compute_time=1, backward_compute_time=0, activation_size=[1;2;3], "
      "parameter_size=4 -- stage_id=0\n" +
      node("node2", "b") + "\tnode1 -- node2\n";
  const Profile profile = parse_pipedream(text, "graph.txt");
  EXPECT_EQ(profile.op_name[0], "A -- B(x=1, y=[2; 3])");
  EXPECT_EQ(profile.stash_bytes[0], 6);
}

TEST(Pipedream, ErrorsNameTheLine) {
  const std::string good = node("node1", "a") + node("node2", "b") + "\tnode1 -- node2\n";
  EXPECT_THAT(message_of(good + "\tnode1 -- node9\n"), HasSubstr("graph.txt:4: edge node1 -- node9: node node9"));
  EXPECT_THAT(message_of(good + node("node2", "again")), HasSubstr("graph.txt:4: node node2 is defined twice"));
  EXPECT_THAT(message_of(good + "\tnode2 -- node1\n"), HasSubstr("closes a cycle"));
  EXPECT_THAT(message_of(good + "\tnode2 -- node2\n"), HasSubstr("graph.txt:4"));
  EXPECT_THAT(message_of(good + "what is this\n"), HasSubstr("graph.txt:4: found 'what is this'"));
  EXPECT_THAT(message_of(node("node1", "a", "-1")), HasSubstr("activation_size: found '-1'"));
  EXPECT_THAT(message_of(node("node1", "a", "nan")), HasSubstr("graph.txt:1"));
  EXPECT_THAT(message_of(node("node1", "a", "[1; 2")), HasSubstr("closing ]"));
  EXPECT_THAT(message_of(node("node1", "a", "[1; x]")), HasSubstr("found 'x'"));
  EXPECT_THAT(message_of(node("node1", "a", "1", "fast")), HasSubstr("forward_compute_time: found 'fast'"));
  EXPECT_THAT(message_of("node1 -- a -- forward_compute_time=1, activation_size=1, parameter_size=0\n"),
              HasSubstr("no backward_compute_time"));
  EXPECT_THAT(message_of("node1 -- a -- forward_compute_time=1, forward_compute_time=1\n"), HasSubstr("twice"));
  EXPECT_THAT(message_of("node1 -- a -- forward_compute_time=1, colour=1\n"), HasSubstr("colour"));
  EXPECT_THAT(message_of("\n\n"), HasSubstr("no node"));
  // Too short to plan: the reader of files says so.
  EXPECT_THROW(read_profile(node("node1", "a"), "graph.txt"), Error);
}

// A long chain must not exhaust the stack.
TEST(Pipedream, DeepGraphs) {
  std::string text;
  constexpr int kNodes = 200000;
  for (int i = kNodes; i > 0; --i) text += node("node" + std::to_string(i), "x");
  for (int i = 1; i < kNodes; ++i) text += "\tnode" + std::to_string(i) + " -- node" + std::to_string(i + 1) + "\n";
  const Profile profile = parse_pipedream(text, "graph.txt");
  ASSERT_EQ(profile.size(), kNodes);
  EXPECT_EQ(profile.name.front(), "node1");
  EXPECT_EQ(profile.name.back(), "node" + std::to_string(kNodes));
}

// On random DAGs: a topological order of all nodes, and the live bytes of every cut recounted from the edges.
TEST(Pipedream, RandomGraphsAgainstRecounting) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const int n = 2 + static_cast<int>(random() % 12);
    std::vector<int> label(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) label[static_cast<std::size_t>(i)] = i;
    std::shuffle(label.begin(), label.end(), random);
    std::string text;
    for (int i = 0; i < n; ++i) text += node("node" + std::to_string(i), "x", std::to_string(1 << i));
    std::set<std::pair<int, int>> edges;
    for (int k = static_cast<int>(random() % 20); k > 0; --k) {
      const int a = static_cast<int>(random() % static_cast<unsigned>(n)),
                b = static_cast<int>(random() % static_cast<unsigned>(n));
      if (a < b) edges.emplace(label[static_cast<std::size_t>(a)], label[static_cast<std::size_t>(b)]);
    }
    for (const auto& [a, b] : edges) text += "\tnode" + std::to_string(a) + " -- node" + std::to_string(b) + "\n";
    const Profile profile = parse_pipedream(text, "graph.txt");
    ASSERT_EQ(profile.size(), n);
    std::map<std::string, int> place;
    for (int i = 0; i < n; ++i) place[profile.name[static_cast<std::size_t>(i)]] = i;
    ASSERT_EQ(place.size(), static_cast<std::size_t>(n));
    for (int cut = 0; cut < n; ++cut) {
      std::set<int> live;
      for (const auto& [a, b] : edges) {
        const int from = place["node" + std::to_string(a)], to = place["node" + std::to_string(b)];
        ASSERT_LT(from, to);
        if (from <= cut && to > cut) live.insert(a);
      }
      double bytes = 0;
      for (int id : live) bytes += 1 << id;
      EXPECT_EQ(profile.a_bytes[static_cast<std::size_t>(cut)], bytes);
    }
  }
}

// Every profile of the corpus loads, and its sums are those of the numbers in the text, read by a pattern.
TEST(Pipedream, CorpusProfiles) {
  const char* corpus = std::getenv("AUTOMAP_CORPUS");
  if (corpus == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: the profiles of the corpus were not read";
  int read = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::filesystem::path(corpus) / "profiles")) {
    if (entry.path().extension() != ".txt" || entry.path().filename().string().rfind("LICENSE", 0) == 0) continue;
    const std::string path = entry.path().string();
    const std::string text = read_file(path);
    const Profile profile = load_profile(path);
    std::set<std::string> has_input, has_output;
    const std::regex edge_pattern("^\\s+(node\\w+) -- (node\\w+)\\s*$");
    const std::regex node_pattern(
        "^(node\\w+) -- (.*) -- forward_compute_time=([0-9.]+), backward_compute_time=([0-9.]+), "
        "activation_size=(.*), parameter_size=([0-9.]+).*");
    std::istringstream lines(text);
    std::smatch match;
    for (std::string line; std::getline(lines, line);) {
      if (std::regex_match(line, match, edge_pattern)) {
        has_output.insert(match[1]);
        has_input.insert(match[2]);
      }
    }
    double c = 0, w = 0, stash = 0;
    int nodes = 0;
    lines = std::istringstream(text);
    for (std::string line; std::getline(lines, line);) {
      if (!std::regex_match(line, match, node_pattern)) continue;
      const std::string description = match[2];
      if (description.rfind("Input", 0) == 0 && has_input.count(match[1]) == 0) continue;
      if (description.rfind("__getitem__", 0) == 0 && has_output.count(match[1]) == 0) continue;
      ++nodes;
      c += std::stod(match[3]) + std::stod(match[4]);
      w += std::stod(match[6]);
      const std::string sizes = match[5];
      const std::regex number("[0-9.]+");
      for (std::sregex_iterator it(sizes.begin(), sizes.end(), number), end; it != end; ++it)
        stash += std::stod(it->str());
    }
    const auto sum = [](const std::vector<double>& values) {
      double total = 0;
      for (double value : values) total += value;
      return total;
    };
    EXPECT_EQ(profile.size(), nodes) << path;
    EXPECT_NEAR(sum(profile.c_ms), c, 1e-9 * c) << path;
    EXPECT_NEAR(sum(profile.w_bytes), w, 1e-9 * w) << path;
    EXPECT_NEAR(sum(profile.stash_bytes), stash, 1e-9 * stash) << path;
    EXPECT_GT(profile.forward_fraction, 0.1) << path;
    EXPECT_LT(profile.forward_fraction, 0.9) << path;
    ++read;
  }
  EXPECT_GE(read, 10);
}

}  // namespace
}  // namespace automap::io
