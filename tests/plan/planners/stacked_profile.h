#pragma once

#include <string>

#include "common/pipeline/profile.h"

namespace automap::planners {

// `layers` layers of four equal instructions between an embedding and a head of two.
inline pipeline::Profile stacked(int layers) {
  pipeline::Profile profile;
  profile.model = "stacked";
  const auto add = [&](const std::string& layer) {
    profile.c_ms.push_back(1);
    profile.a_bytes.push_back(1e5);
    profile.w_bytes.push_back(1e5);
    profile.stash_bytes.push_back(0);
    profile.layer.push_back(layer);
  };
  for (int i = 0; i < 2; ++i) add("embeddings");
  for (int l = 0; l < layers; ++l) {
    for (const char* part : {"/attn", "/attn", "/mlp", ""}) add("h/" + std::to_string(l) + part);
  }
  for (int i = 0; i < 2; ++i) add("head");
  return profile;
}

}  // namespace automap::planners
