#include "common/io/hdf5.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <functional>

#include "common/base/error.h"
#include "common/base/files.h"

namespace automap::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string small_file() {
  return in_hdf5_process(Hdf5Task::kWrite, "small.h5", 0, [] {
    Hdf5Writer writer("small.h5");
    writer.write_attribute("schema", std::string("x"));
    writer.write_doubles("c", {1, 2, 3});
    writer.write_strings("s", {"", "\xc3\xbc", "abc"});
    return writer.finish();
  });
}

std::string refusal(std::string_view bytes) {
  try {
    check_hdf5_bytes(bytes, "f.h5");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    EXPECT_NE(e.hint(), "");
    EXPECT_THAT(e.what(), HasSubstr("f.h5: "));
    return e.what();
  }
  return "";
}

TEST(Hdf5, WhatIsWrittenIsRead) {
  const std::string file = small_file();
  const std::string answer = in_hdf5_process(Hdf5Task::kReadUnknown, "small.h5", file.size(), [&] {
    const Hdf5Reader reader(file, "small.h5");
    ByteWriter out;
    out.put_string(*reader.string_attribute("schema"));
    reader.doubles("c", 10, &out);
    reader.strings("s", 10, &out);
    return out.bytes();
  });
  ByteReader in(answer, "answer");
  EXPECT_EQ(in.get_string(), "x");
  EXPECT_EQ(in.get_vector<double>(), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(read_strings(&in), (std::vector<std::string>{"", "\xc3\xbc", "abc"}));
  EXPECT_TRUE(in.at_end());
}

TEST(Hdf5, ChecksumsAreVerified) {
  const std::string file = small_file();
  EXPECT_EQ(hdf5_data_end(file, "f.h5"), file.size());
  EXPECT_FALSE(check_hdf5_bytes(file, "f.h5").verified);
  EXPECT_EQ(check_hdf5_bytes(file, "f.h5").extra, 0u);
  std::string signed_file = file;
  add_hdf5_checksum(&signed_file);
  ASSERT_EQ(signed_file.size(), file.size() + 32);
  EXPECT_EQ(signed_file.substr(file.size(), 16), "AutoMap checksum");
  const Hdf5Bytes checked = check_hdf5_bytes(signed_file, "f.h5");
  EXPECT_TRUE(checked.verified);
  EXPECT_EQ(checked.data, file);
  // Every flipped byte is found, but for those that make the mark another text: then it is no checksum.
  for (std::size_t at = 0; at < signed_file.size(); ++at) {
    std::string damaged = signed_file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    if (at >= file.size() && at < file.size() + 16) {
      EXPECT_EQ(check_hdf5_bytes(damaged, "f.h5").extra, 32u) << at;
    } else {
      EXPECT_THAT(refusal(damaged), HasSubstr("damaged")) << at;
    }
  }
  // Every length but the one without a checksum.
  for (std::size_t size = 8; size < signed_file.size(); ++size) {
    if (size == file.size()) continue;
    EXPECT_THAT(refusal(std::string_view(signed_file).substr(0, size)), HasSubstr("cut short")) << size;
  }
  EXPECT_THAT(refusal(signed_file + "x"), HasSubstr("other bytes follow"));
  EXPECT_EQ(check_hdf5_bytes(file + "xyz", "f.h5").extra, 3u);
}

TEST(Hdf5, TheFirstBytesAreLookedAt) {
  std::string file = small_file();
  EXPECT_THAT(refusal(""), HasSubstr("not a whole HDF5 file"));
  EXPECT_THAT(refusal(std::string(200, 'x')), HasSubstr("not a whole HDF5 file"));
  EXPECT_THAT(refusal(std::string_view(file).substr(0, 500)),
              AllOf(HasSubstr("found 500 bytes"), HasSubstr(std::to_string(file.size()))));
  std::string other = file;
  other[8] = 9;
  EXPECT_THAT(refusal(other), HasSubstr("superblock version 9"));
  other = file;
  other[9] = 3;
  EXPECT_THAT(refusal(other), HasSubstr("addresses of 3 bytes"));
}

// The error when the library crashes, by the purpose of calling it.
Error failure_of(Hdf5Task task, const std::function<std::string()>& work) {
  try {
    in_hdf5_process(task, "f.h5", 100, work);
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorKind::kInternal, "");
}

TEST(Hdf5, ACrashOfTheLibraryIsAnError) {
  const auto crash = []() -> std::string {
    ::raise(SIGSEGV);
    return "";
  };
  const Error unknown = failure_of(Hdf5Task::kReadUnknown, crash);
  EXPECT_EQ(unknown.kind(), ErrorKind::kData);
  EXPECT_THAT(unknown.what(), AllOf(HasSubstr("f.h5: damaged"), HasSubstr("signal 11")));
  const Error verified = failure_of(Hdf5Task::kReadVerified, crash);
  EXPECT_EQ(verified.kind(), ErrorKind::kIo);
  EXPECT_THAT(verified.what(), AllOf(HasSubstr("cannot read f.h5"), HasSubstr("checksum is right")));
  EXPECT_THAT(verified.hint(), HasSubstr("memory"));
  const Error written = failure_of(Hdf5Task::kWrite, crash);
  EXPECT_EQ(written.kind(), ErrorKind::kMemory);
  EXPECT_THAT(written.what(), HasSubstr("cannot write f.h5"));
  const auto no_memory = []() -> std::string { throw std::bad_alloc(); };
  EXPECT_THROW(in_hdf5_process(Hdf5Task::kWrite, "f.h5", 0, no_memory), std::bad_alloc);
}

TEST(Hdf5, ReasonsWithoutAddresses) {
  EXPECT_EQ(
      internal::readable_hdf5_reason("file write failed: time = Thu Jan  1 00:00:00 1970\n, filename = 'x.h5', file "
                                     "descriptor = 5, errno = 28, error message = 'No space left on device', buf = "
                                     "0x55d0c0ffee, total write size = 96, offset = 0"),
      "file write failed: No space left on device");
  EXPECT_EQ(internal::readable_hdf5_reason("truncated file: eof = 96, sblock->base_addr = 0, stored_eof = 2048"),
            "truncated file: eof = 96, sblock->base_addr = 0, stored_eof = 2048");
  EXPECT_EQ(internal::readable_hdf5_reason("bad heap, at 0x7f00, again"), "bad heap, again");
  EXPECT_EQ(internal::readable_hdf5_reason(""), "");
}

TEST(Hdf5, AttributesTooLongAreRefused) {
  const auto write = [](const std::function<void(Hdf5Writer&)>& make) {
    return failure_of(Hdf5Task::kWrite, [&] {
      Hdf5Writer writer("f.h5");
      make(writer);
      return writer.finish();
    });
  };
  const std::string longest(60000, 'x'), longer(60001, 'x');
  const Error e = write([&](Hdf5Writer& w) { w.write_attribute("model", longer); });
  EXPECT_EQ(e.kind(), ErrorKind::kData);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("model"), HasSubstr("60001")));
  EXPECT_THAT(e.hint(), HasSubstr(".csv"));
  const std::string file = in_hdf5_process(Hdf5Task::kWrite, "f.h5", 0, [&] {
    Hdf5Writer writer("f.h5");
    writer.write_attribute("model", longest);
    writer.write_strings("s", {longest, ""});
    return writer.finish();
  });
  EXPECT_GT(file.size(), 3 * longest.size());
}

}  // namespace
}  // namespace automap::io
