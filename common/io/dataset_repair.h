// Repairs a damaged dataset.json for a caller who knows the wanted content.
#pragma once

#include <string>
#include <string_view>

#include "common/io/dataset_format.h"

namespace automap::io {

// Parses `text`, the folder's dataset.json. If it has no checksum of its own, as older versions wrote it, lines that do
// not agree with their shards are left out. If it is damaged, the result is `wanted`, with those of its lines that
// agree with their shards to the byte; a warning says so. That takes evidence that the folder holds the wanted dataset:
// all that stands before the list of shards, or one shard of the wanted dataset that is as listed. Without evidence the
// folder may be another dataset, and Error(kData) says what is damaged, as it does for files of another schema or
// version; Error(kConfig) when there are shards beyond the wanted rows.
DatasetManifest understand_manifest(const std::string& folder, std::string_view text, const DatasetManifest& wanted);

}  // namespace automap::io
