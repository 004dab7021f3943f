#include "models/learner/gloo_link.h"

#ifdef AUTOMAP_WITH_GLOO
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/types.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/log.h"

namespace automap::models {

#ifdef AUTOMAP_WITH_GLOO
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 32;
// Heads of messages and what says that a process is alive; the bytes of a message have a tag of their own, so that the
// two threads that send never mix.
constexpr int kHeadTag = 1, kBytesTag = 2;
// Gloo ends all connections of a process when one wait is over in vain: what may wait long waits as long as it likes.
constexpr milliseconds kNoLimit{std::chrono::hours(24 * 365)};
constexpr auto kPoll = milliseconds(20);

struct Head {
  std::uint64_t message = 0;  // 0: alive, nothing follows
  std::uint64_t bytes = 0;
};

at::Tensor tensor_of(const void* data, std::size_t bytes) {
  return torch::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(bytes)}, torch::kUInt8);
}

std::string host_and_port(const RankPlace& place) {
  return place.address + ":" + std::to_string(place.port);
}

// The first line of what c10d and Gloo say: the others are a stack.
std::string first_line(const std::exception& e) {
  const std::string text = e.what();
  return text.substr(0, text.find('\n'));
}

// The address of this machine that others reach it by: the one that packets to rank 0 leave from. Gloo's own choice,
// the address of the machine's name, is a loopback address on many machines.
std::string own_address(const RankPlace& place) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(place.address.c_str(), std::to_string(place.port).c_str(), &hints, &found) != 0) {
    throw Error(ErrorKind::kConfig, "the address of rank 0 is unknown: " + place.address,
                "MASTER_ADDR names a machine that every rank can reach");
  }
  std::string out;
  for (const addrinfo* a = found; a != nullptr && out.empty(); a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (fd < 0) continue;
    sockaddr_storage self{};
    socklen_t length = sizeof self;
    std::array<char, NI_MAXHOST> name{};
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&self), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&self), length, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) ==
            0) {
      out = name.data();
    }
    close(fd);
  }
  freeaddrinfo(found);
  return out;
}

// Before c10d tries it, which logs much and says little. Whoever takes the port in between is told of by c10d.
void check_port(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<std::uint16_t>(port));
  const int error = bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 ? 0 : errno;
  close(fd);
  if (error == 0) return;
  constexpr int kLast = 65535;
  throw Error(ErrorKind::kConfig, "rank 0 cannot listen at port " + std::to_string(port) + ": " + std::strerror(error),
              std::string(error == EADDRINUSE ? "another run or program uses it; " : "") +
                  "choose another one for all ranks: MASTER_PORT=" + std::to_string(port < kLast ? port + 1 : 29500));
}

// Waits until a process listens at rank 0's port; false after the timeout. c10d asks once a second and logs each time.
bool wait_for_port(const RankPlace& place, milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(place.address.c_str(), std::to_string(place.port).c_str(), &hints, &found) != 0) return false;
  bool there = false;
  while (!there && std::chrono::steady_clock::now() < until) {
    for (const addrinfo* a = found; a != nullptr && !there; a = a->ai_next) {
      const int fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
      if (fd < 0) continue;
      // So that a machine that is not there yet is asked again within the time.
      timeval patience{};
      patience.tv_sec = std::max<std::int64_t>(1, timeout.count() / 4000);
      setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
      there = connect(fd, a->ai_addr, a->ai_addrlen) == 0;
      close(fd);
    }
    if (!there) std::this_thread::sleep_for(kPoll);
  }
  freeaddrinfo(found);
  return there;
}

class GlooLink : public RankLink {
 public:
  GlooLink(const RankPlace& place, double timeout_s)
      : rank_(place.rank), size_(place.size), timeout_(std::max<std::int64_t>(1, std::llround(timeout_s * 1e3))) {
    const std::string address = own_address(place);
    open_store(place);
    meet(place);
    auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
    try {
      const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
      options->devices.push_back(interface && *interface ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                 : address.empty()       ? c10d::ProcessGroupGloo::createDefaultDevice()
                                                         : c10d::ProcessGroupGloo::createDeviceForHostname(address));
      options->threads = 1;
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, rank_, size_, options);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      throw Error(ErrorKind::kConfig,
                  "rank " + std::to_string(rank_) + " could not connect with the others: " + first_line(e),
                  "ranks connect with each other at ports of the system's choice; GLOO_SOCKET_IFNAME names the network "
                  "interface when the one that leads to MASTER_ADDR is the wrong one");
    }
    peers_.resize(static_cast<std::size_t>(size_));
    for (Peer& peer : peers_) peer.heard = Clock::now();
    for (int peer = 0; peer < size_; ++peer) {
      if ((peer == 0) == (rank_ == 0)) continue;
      threads_.emplace_back([this, peer] { beat(peer); });
      threads_.emplace_back([this, peer] { listen(peer); });
    }
  }

  ~GlooLink() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      quit_ = true;
      for (const auto& work : waiting_) work->abort();
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  bool send(int to, std::string_view bytes) override {
    return attempt(to, [&] {
      const Head head{1, bytes.size()};
      send_now(to, &head, sizeof head, kHeadTag);
      if (!bytes.empty()) send_now(to, bytes.data(), bytes.size(), kBytesTag);
    });
  }

  std::optional<std::string> receive(int from) override {
    std::unique_lock<std::mutex> lock(mutex_);
    Peer& peer = peers_[static_cast<std::size_t>(from)];
    while (peer.messages.empty()) {
      if (peer.gone) return std::nullopt;
      if (wake_.wait_until(lock, peer.heard + timeout_) == std::cv_status::timeout &&
          Clock::now() >= peer.heard + timeout_ && peer.messages.empty()) {
        log_verbose("rank " + std::to_string(from) + ": nothing heard for " + std::to_string(timeout_.count()) + " ms");
        return std::nullopt;
      }
    }
    std::string bytes = std::move(peer.messages.front());
    peer.messages.pop_front();
    return bytes;
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Work = decltype(std::declval<c10d::ProcessGroupGloo&>().barrier());
  // The messages that have come from another rank, and the time of the last sign of it.
  struct Peer {
    std::deque<std::string> messages;
    Clock::time_point heard;
    bool gone = false;
  };

  void open_store(const RankPlace& place) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(place.port);
    options.isServer = rank_ == 0;
    options.waitWorkers = false;
    options.timeout = timeout_;
    if (options.isServer) check_port(place.port);
    const auto nobody = [&] {
      return Error(
          ErrorKind::kConfig,
          "rank " + std::to_string(rank_) + " found no rank 0 at " + host_and_port(place) + " within " +
              std::to_string(timeout_.count() / 1000) + " s",
          "MASTER_ADDR and MASTER_PORT are those of rank 0 and the same for every rank; --rank-timeout waits longer");
    };
    if (!options.isServer && !wait_for_port(place, timeout_)) throw nobody();
    try {
      store_ = c10::make_intrusive<c10d::PrefixStore>("automap",
                                                      c10::make_intrusive<c10d::TCPStore>(place.address, options));
      if (rank_ == 0) put("up", "1");
      // The first thing that is asked for with a limit of time: whoever else listens at that port does not answer.
      store_->wait({"up"}, timeout_);
    } catch (const std::exception& e) {
      log_verbose(first_line(e));
      if (options.isServer) {
        throw Error(ErrorKind::kConfig, "rank 0 cannot serve at " + host_and_port(place) + ": " + first_line(e),
                    "MASTER_ADDR is a name or address of rank 0's own machine, MASTER_PORT a free port there");
      }
      throw nobody();
    }
  }

  void put(const std::string& key, const std::string& value) {
    store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
  }

  // All ranks there, each once, all of the same number. Gloo would wait for the missing ones and name none.
  void meet(const RankPlace& place) {
    try {
      const std::string mine = std::to_string(size_);
      const std::vector<std::uint8_t> others =
          store_->compareSet("size", {}, std::vector<std::uint8_t>(mine.begin(), mine.end()));
      if (const std::string theirs(others.begin(), others.end()); theirs != mine) {
        throw Error(ErrorKind::kConfig,
                    "rank " + std::to_string(rank_) + " is one of " + mine + " ranks, another one is one of " + theirs,
                    "WORLD_SIZE is the same for every rank; another run at " + host_and_port(place) +
                        " needs another MASTER_PORT");
      }
      if (store_->add("rank/" + std::to_string(rank_), 1) > 1) {
        throw Error(
            ErrorKind::kConfig, "two processes say that they are rank " + std::to_string(rank_),
            "each has a RANK of its own; another run at " + host_and_port(place) + " needs another MASTER_PORT");
      }
      const auto until = std::chrono::steady_clock::now() + timeout_;
      for (int other = 0; other < size_;) {
        if (store_->check({"rank/" + std::to_string(other)})) {
          ++other;
          continue;
        }
        if (std::chrono::steady_clock::now() > until) {
          throw Error(
              ErrorKind::kConfig,
              "rank " + std::to_string(other) + " of " + mine + " did not come within " +
                  std::to_string(timeout_.count() / 1000) + " s",
              "start it (the launcher's log may say why it is missing), or set WORLD_SIZE to the ranks there are; "
              "--rank-timeout waits longer");
        }
        std::this_thread::sleep_for(kPoll);
      }
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      throw Error(ErrorKind::kConfig,
                  "rank " + std::to_string(rank_) + ": the others ended before all were there: " + first_line(e),
                  "the error of the rank that ended first says why");
    }
  }

  template <typename Body>
  bool attempt(int peer, Body&& body) {
    try {
      body();
      return true;
    } catch (const std::exception& e) {
      log_verbose("rank " + std::to_string(peer) + ": " + first_line(e));
      return false;
    }
  }

  void send_now(int to, const void* data, std::size_t bytes, int tag) {
    std::vector<at::Tensor> tensors{tensor_of(data, bytes)};
    group_->send(tensors, to, tag)->wait(timeout_);
  }

  // Begins, with mutex_ held, and waits for it, without; ended by the destructor. False: it was.
  template <typename Begin>
  bool wait_for(std::unique_lock<std::mutex>& lock, Begin&& begin) {
    if (quit_) return false;
    const Work work = begin();
    waiting_.push_back(work);
    lock.unlock();
    const auto again = [&] {
      lock.lock();
      waiting_.erase(std::find(waiting_.begin(), waiting_.end(), work));
    };
    try {
      work->wait(kNoLimit);
    } catch (...) {
      again();
      throw;
    }
    again();
    return !quit_;
  }

  // One sign of life at a time: the next one when the other side has taken it.
  void beat(int peer) {
    const Head alive;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!wake_.wait_for(lock, timeout_ / 4, [&] { return quit_ || gone(peer); })) {
      attempt(peer, [&] {
        std::vector<at::Tensor> tensors{tensor_of(&alive, sizeof alive)};
        wait_for(lock, [&] { return group_->send(tensors, peer, kHeadTag); });
      });
    }
  }

  // Takes whatever comes, at once and whatever this process is busy with: no sender waits for longer than the network
  // takes, and its signs of life are heard.
  void listen(int peer) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto take = [&](void* data, std::size_t bytes, int tag) {
      std::vector<at::Tensor> tensors{tensor_of(data, bytes)};
      return wait_for(lock, [&] { return group_->recv(tensors, peer, tag); });
    };
    attempt(peer, [&] {
      for (Head head; take(&head, sizeof head, kHeadTag);) {
        Peer& from = peers_[static_cast<std::size_t>(peer)];
        from.heard = Clock::now();
        if (head.message == 0) continue;
        if (head.bytes > kMostBytes)
          throw Error(ErrorKind::kData, "a message of " + std::to_string(head.bytes) + " bytes");
        std::string bytes(head.bytes, '\0');
        if (!bytes.empty() && !take(bytes.data(), bytes.size(), kBytesTag)) return;
        from.heard = Clock::now();
        from.messages.push_back(std::move(bytes));
        wake_.notify_all();
      }
    });
    peers_[static_cast<std::size_t>(peer)].gone = true;
    wake_.notify_all();
  }

  bool gone(int peer) const { return peers_[static_cast<std::size_t>(peer)].gone; }

  int rank_, size_;
  milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  bool quit_ = false;
  std::vector<Work> waiting_;
  std::vector<Peer> peers_;  // [rank]
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<RankLink> join_ranks(const RankPlace& place, double timeout_s) {
  return std::make_unique<GlooLink>(place, timeout_s);
}

#else

std::unique_ptr<RankLink> join_ranks(const RankPlace& place, double) {
  throw Error(ErrorKind::kConfig,
              "this automap-train was built without Gloo and cannot be one of " + std::to_string(place.size) + " ranks",
              "install libgloo-dev (or a LibTorch with Gloo's headers) and build again, or start it once without "
              "RANK and WORLD_SIZE");
}

#endif

}  // namespace automap::models
