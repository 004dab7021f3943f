// Learning curves hold one row of numbers per evaluation, and are written as CSV and as TensorBoard event files.
//
// curves.csv is rewritten whole each time; the event file grows by whole records, so that a TensorBoard that watches it
// sees the new ones. A record is a TFRecord: u64 length, masked crc32c of those eight bytes, an Event protocol buffer,
// masked crc32c of it, little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace automap::train {

struct CurvePoint {
  std::uint64_t episodes = 0;
  double seconds = 0;                                  // of training, over all sessions
  double unix_time = 0;                                // when it was measured
  std::vector<std::pair<std::string, double>> values;  // "greedy/small/mean", 0.012; not finite: left out
};

// The text of curves.csv: "episodes,seconds,NAME,..." and a line per point; columns come in the order in which they
// first appear.
std::string curves_csv(const std::vector<CurvePoint>& points);

// The record of a point (a scalar summary at step = episodes), and the record that every file starts with.
std::string event_record(const CurvePoint& point);
std::string event_file_header(double unix_time);

// Masked crc32c of TFRecords: rotate right by 15, add 0xa282ead8.
std::uint32_t masked_crc32c(std::string_view bytes);

class Curves {
 public:
  // Writes curves.csv and events.out.tfevents.automap in `folder`, both anew, beginning with `points`, those of the
  // sessions before. Throws Error(kIo) naming the file.
  Curves(std::string folder, std::vector<CurvePoint> points);
  void add(CurvePoint point);
  const std::vector<CurvePoint>& points() const { return points_; }

 private:
  std::string csv_path_, events_path_;
  std::vector<CurvePoint> points_;
};

}  // namespace automap::train
