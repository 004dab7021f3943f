#include "train/rank_messages.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "common/base/byte_stream.h"

namespace automap::train {
namespace {

constexpr int kShownDifferences = 3;

ByteWriter begin(RankMessage kind) {
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(kind));
  return out;
}

ByteReader open(std::string_view bytes, RankMessage expected, const std::string& source) {
  ByteReader in(bytes, source);
  if (in.get<std::uint8_t>() != static_cast<std::uint8_t>(expected)) in.fail("another message than expected");
  return in;
}

void close(const ByteReader& in) {
  if (!in.at_end()) in.fail("more than expected");
}

void put(ByteWriter& out, const models::Decision& d) {
  out.put_vector(d.inputs);
  out.put<std::int32_t>(d.actions);
  out.put_vector(d.log_bound);
  out.put_vector(d.legal);
  out.put<std::int32_t>(d.chosen);
  out.put_vector(d.exact_y);
  out.put(d.label_limit_y);
}

models::Decision decision(ByteReader& in) {
  models::Decision d;
  d.inputs = in.get_vector<float>();
  d.actions = in.get<std::int32_t>();
  d.log_bound = in.get_vector<float>();
  d.legal = in.get_vector<std::uint8_t>();
  d.chosen = in.get<std::int32_t>();
  d.exact_y = in.get_vector<float>();
  d.label_limit_y = in.get<float>();
  return d;
}

void put(ByteWriter& out, const models::Played& played) {
  for (const std::uint64_t n :
       {played.plays, played.steps, played.after_states, played.decisions, played.labelled, played.infeasible}) {
    out.put(n);
  }
  out.put(played.y);
  out.put<std::uint64_t>(played.episodes.size());
  for (const models::Episode& episode : played.episodes) {
    out.put(episode.y);
    out.put<std::uint8_t>(episode.feasible);
    out.put<std::uint64_t>(episode.decisions.size());
    for (const models::Decision& d : episode.decisions) put(out, d);
  }
}

// Counts are not trusted with memory: what is announced has to come.
models::Played played(ByteReader& in) {
  models::Played out;
  for (std::uint64_t* n : {&out.plays, &out.steps, &out.after_states, &out.decisions, &out.labelled, &out.infeasible}) {
    *n = in.get<std::uint64_t>();
  }
  out.y = in.get<double>();
  const auto episodes = in.get<std::uint64_t>();
  for (std::uint64_t e = 0; e < episodes; ++e) {
    models::Episode& episode = out.episodes.emplace_back();
    episode.y = in.get<float>();
    episode.feasible = in.get<std::uint8_t>() != 0;
    const auto decisions = in.get<std::uint64_t>();
    for (std::uint64_t d = 0; d < decisions; ++d) episode.decisions.push_back(decision(in));
  }
  return out;
}

}  // namespace

RankFacts facts_of_this_process() {
  RankFacts facts;
  std::array<char, 256> name{};
  facts.host = gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
  facts.process = static_cast<int>(getpid());
  return facts;
}

std::string rank_difference(const RankFacts& ours, const RankFacts& theirs) {
  std::string text;
  int count = 0;
  const auto differs = [&](const std::string& what, const std::string& their, const std::string& our) {
    if (++count > kShownDifferences) return;
    text += (count > 1 ? "; " : "") + what + " is " + (their.empty() ? "not given" : their) + ", for rank 0 it is " +
            (our.empty() ? "not given" : our);
  };
  if (ours.program != theirs.program) differs("the program", theirs.program, ours.program);
  for (const auto& [name, our] : ours.options) {
    const auto their = std::find_if(theirs.options.begin(), theirs.options.end(),
                                    [&, &key = name](const auto& option) { return option.first == key; });
    if (their == theirs.options.end()) {
      differs("--" + name, "unknown", our);
    } else if (their->second != our) {
      differs("--" + name, their->second, our);
    }
  }
  if (ours.data != theirs.data) differs("the data", theirs.data, ours.data);
  if (count > kShownDifferences) text += "; and " + std::to_string(count - kShownDifferences) + " more";
  return text;
}

std::string bytes_of_message(RankMessage kind) {
  return std::move(begin(kind).bytes());
}

std::string bytes_of_message(const RankFacts& facts) {
  ByteWriter out = begin(RankMessage::kHello);
  out.put_string(facts.program);
  out.put<std::uint64_t>(facts.options.size());
  for (const auto& [name, value] : facts.options) {
    out.put_string(name);
    out.put_string(value);
  }
  out.put_string(facts.data);
  out.put_string(facts.host);
  out.put<std::int32_t>(facts.process);
  out.put<std::int32_t>(facts.threads);
  return std::move(out.bytes());
}

std::string bytes_of_message(const PlayOrder& order) {
  ByteWriter out = begin(RankMessage::kPlay);
  out.put(order.first);
  out.put(order.count);
  out.put_string(order.policy);
  out.put(order.progress);
  return std::move(out.bytes());
}

std::string bytes_of_message(const PlayAnswer& answer) {
  ByteWriter out = begin(RankMessage::kPlayed);
  out.put<std::uint8_t>(answer.stop_requested);
  out.put(answer.waited_s);
  out.put<std::uint64_t>(answer.played.size());
  for (const models::Played& p : answer.played) put(out, p);
  return std::move(out.bytes());
}

std::string bytes_of_message(const EndOrder& order) {
  ByteWriter out = begin(RankMessage::kEnd);
  out.put<std::int32_t>(order.exit_code);
  out.put_string(order.message);
  return std::move(out.bytes());
}

std::string bytes_of_message(const Error& failure) {
  ByteWriter out = begin(RankMessage::kFailed);
  out.put<std::uint8_t>(static_cast<std::uint8_t>(failure.kind()));
  out.put_string(failure.what());
  out.put_string(failure.hint());
  return std::move(out.bytes());
}

RankMessage kind_of_message(std::string_view bytes, const std::string& source) {
  ByteReader in(bytes, source);
  const auto kind = in.get<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(RankMessage::kBye)) in.fail("an unknown message");
  return static_cast<RankMessage>(kind);
}

RankFacts facts_of_message(std::string_view bytes, const std::string& source) {
  ByteReader in = open(bytes, RankMessage::kHello, source);
  RankFacts facts;
  facts.program = in.get_string();
  const auto options = in.get<std::uint64_t>();
  for (std::uint64_t i = 0; i < options; ++i) {
    std::string name = in.get_string();
    facts.options.emplace_back(std::move(name), in.get_string());
  }
  facts.data = in.get_string();
  facts.host = in.get_string();
  facts.process = in.get<std::int32_t>();
  facts.threads = in.get<std::int32_t>();
  close(in);
  return facts;
}

PlayOrder order_of_message(std::string_view bytes, const std::string& source) {
  ByteReader in = open(bytes, RankMessage::kPlay, source);
  PlayOrder order;
  order.first = in.get<std::uint64_t>();
  order.count = in.get<std::uint64_t>();
  order.policy = in.get_string();
  order.progress = in.get<double>();
  close(in);
  return order;
}

PlayAnswer answer_of_message(std::string_view bytes, const std::string& source) {
  ByteReader in = open(bytes, RankMessage::kPlayed, source);
  PlayAnswer answer;
  answer.stop_requested = in.get<std::uint8_t>() != 0;
  answer.waited_s = in.get<double>();
  const auto count = in.get<std::uint64_t>();
  for (std::uint64_t i = 0; i < count; ++i) answer.played.push_back(played(in));
  close(in);
  return answer;
}

EndOrder end_of_message(std::string_view bytes, const std::string& source) {
  ByteReader in = open(bytes, RankMessage::kEnd, source);
  EndOrder order;
  order.exit_code = in.get<std::int32_t>();
  order.message = in.get_string();
  close(in);
  return order;
}

Error failure_of_message(std::string_view bytes, const std::string& who) {
  ByteReader in = open(bytes, RankMessage::kFailed, who);
  const auto kind = in.get<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(ErrorKind::kInternal)) in.fail("an unknown kind of error");
  const std::string message = in.get_string(), hint = in.get_string();
  close(in);
  return Error(static_cast<ErrorKind>(kind), who + ": " + message, hint);
}

}  // namespace automap::train
