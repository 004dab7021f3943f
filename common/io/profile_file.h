// Profiles on disk: schema automap.profile/2 (and /1, read only) as HDF5 or CSV, and PipeDream's graph.txt (read only).
// docs/formats/profile.md describes all three.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/atomic_file.h"
#include "common/pipeline/profile.h"

namespace automap::io {

enum class ProfileForm { kHdf5, kCsv, kPipedream };
const char* to_string(ProfileForm form);

// The form of `bytes` (already gunzipped) by content; nothing when they are no profile (HLO, JSON, ...).
std::optional<ProfileForm> detect_profile(std::string_view bytes);

// `bytes` may be gzipped. The result passes check_profile. Throws Error(kData) naming `source`, and the line, dataset
// or column where there is one: not a profile, damaged, a column missing or of another type or length, a newer version.
// Planning needs no op_name, the longest column by far: with kForPlanning it is left empty (and not looked at) where
// that saves time, in HDF5. HDF5 is read in a process of its own (common/io/hdf5.h), its checksum before that.
enum class ProfileColumns { kAll, kForPlanning };
pipeline::Profile read_profile(std::string bytes, const std::string& source,
                               ProfileColumns columns = ProfileColumns::kAll);
// "-" is standard input. Throws Error(kIo) when it cannot be read.
pipeline::Profile load_profile(const std::string& path);

// CSV text that parse back to an equal profile, bit by bit: numbers are the shortest that read back the same.
std::string to_csv(const pipeline::Profile& profile);

// By extension: .h5 or .hdf5, else .csv; "-" writes CSV to standard output. Atomic: a reader sees the old file or the
// whole new one; the same profile makes the same bytes. Throws Error(kData) when the profile does not pass
// check_profile or has strings too long for HDF5, Error(kUsage) for another extension, Error(kIo) when it cannot be
// written.
void save_profile(const std::string& path, const pipeline::Profile& profile);
// The steps of save_profile, for who opens the file before the work and commits it after the report.
void check_profile_name(const std::string& path);
// True if files of this name's form have tables of times, and of widths (Profile::times, widths).
bool keeps_tables(const std::string& path);
void write_profile(AtomicFile& file, const std::string& path, const pipeline::Profile& profile);

}  // namespace automap::io
