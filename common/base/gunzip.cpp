#include <zlib.h>

#include <algorithm>
#include <memory>
#include <new>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/text_table.h"

namespace automap {
namespace {

// Size of the input and output of one call of zlib: limits are checked this often.
constexpr std::size_t kStepBytes = std::size_t{1} << 20;

// The largest ratio of data that people compress is 51 (HLO as JSON, indented by four, gzip -9); deflate ends at 1032.
// Data that expands more than this many times may only come to so much in all, which a constant of zeros does not
// reach.
constexpr std::uint64_t kUsualRatio = 64;
constexpr std::uint64_t kMostExcessBytes = std::uint64_t{64} << 20;

// No compressor writes twice what it was given, but for headers. Empty members and empty blocks take time and give
// nothing.
constexpr std::uint64_t kMostWastedBytes = std::uint64_t{1} << 20;

Error damaged(const std::string& source, const std::string& what) {
  return Error(ErrorKind::kData, source + ": " + what, "the file may have been cut off or damaged in a download");
}

Error too_large(const std::string& source, std::uint64_t limit_bytes) {
  return Error(ErrorKind::kData,
               source + ": larger than " + format_bytes(static_cast<double>(limit_bytes)) + " when expanded",
               "inputs above this size are refused; is this the file you meant?");
}

Error bomb(const std::string& source, const std::string& why) {
  return Error(ErrorKind::kData, source + ": refused while expanding it: " + why,
               "if it is what you meant, expand it yourself and give the result: gunzip FILE");
}

// Counts the bytes in and out, and checks their ratio.
class Ratio {
 public:
  explicit Ratio(const std::string& source) : source_(source) {}

  void add(std::uint64_t in, std::uint64_t out) {
    if (out > kUsualRatio * in) excess_ += out - kUsualRatio * in;
    if (in > 2 * out) wasted_ += in - 2 * out;
    if (excess_ > kMostExcessBytes) {
      throw bomb(source_, "much of it expands more than " + std::to_string(kUsualRatio) + " times");
    }
    if (wasted_ > kMostWastedBytes) throw bomb(source_, "it holds next to nothing for its size");
  }

 private:
  const std::string& source_;
  std::uint64_t excess_ = 0, wasted_ = 0;
};

// The expanded size that the stream states: the size of the last member modulo 2^32. A good first guess for the memory
// to reserve, but never trusted beyond the usual ratio.
std::size_t reserved_bytes(std::string_view bytes, std::uint64_t limit_bytes) {
  if (bytes.size() < 18) return 0;
  std::uint64_t size = 0;
  for (int i = 1; i <= 4; ++i)
    size = size << 8 | static_cast<unsigned char>(bytes[bytes.size() - static_cast<std::size_t>(i)]);
  return static_cast<std::size_t>(std::min({size + 1, kUsualRatio * bytes.size(), limit_bytes + 1}));
}

}  // namespace

bool is_gzip(std::string_view bytes) {
  return bytes.substr(0, 3) == std::string_view("\x1f\x8b\x08", 3);
}

std::string gunzip(std::string_view bytes, const std::string& source, std::uint64_t limit_bytes) {
  z_stream stream = {};
  const int started = inflateInit2(&stream, 16 + MAX_WBITS);
  if (started == Z_MEM_ERROR) throw std::bad_alloc();
  AM_CHECK(started == Z_OK);
  const std::unique_ptr<z_stream, int (*)(z_streamp)> closer(&stream, inflateEnd);

  Ratio ratio(source);
  std::string out;
  out.reserve(reserved_bytes(bytes, limit_bytes));
  std::size_t consumed = 0, filled = 0;
  for (;;) {
    if (filled == out.size()) {
      // Touch only the part that is about to be filled, whatever was reserved.
      if (filled == out.capacity()) out.reserve(filled + std::max(kStepBytes, filled / 2));
      out.resize(std::min(out.capacity(), filled + kStepBytes));
    }
    const std::size_t input = std::min(bytes.size() - consumed, kStepBytes), room = out.size() - filled;
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + consumed));
    stream.avail_in = static_cast<uInt>(input);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
    stream.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream, Z_NO_FLUSH);
    consumed += input - stream.avail_in;
    filled += room - stream.avail_out;
    ratio.add(input - stream.avail_in, room - stream.avail_out);
    if (filled > limit_bytes) throw too_large(source, limit_bytes);
    if (status == Z_STREAM_END) {
      const std::size_t next = bytes.find_first_not_of('\0', consumed);
      if (next == std::string_view::npos) break;
      if (!is_gzip(bytes.substr(next))) throw damaged(source, "found other bytes after the end of the gzip stream");
      consumed = next;
      AM_CHECK(inflateReset(&stream) == Z_OK);
    } else if (status == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (status == Z_DATA_ERROR || status == Z_NEED_DICT) {
      throw damaged(source, std::string("damaged gzip stream") + (stream.msg ? std::string(": ") + stream.msg : ""));
    } else if (stream.avail_out != 0 && consumed == bytes.size()) {
      throw damaged(source, "the gzip stream ends too early");
    }
  }
  out.resize(filled);
  return out;
}

std::string gunzip_if_gzip(std::string bytes, const std::string& source, std::uint64_t limit_bytes) {
  return is_gzip(bytes) ? gunzip(bytes, source, limit_bytes) : std::move(bytes);
}

}  // namespace automap
