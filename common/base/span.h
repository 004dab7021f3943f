// A view of contiguous values: std::span for C++17. Does not own; becomes an alias when the project moves to C++20.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

namespace automap {

template <typename T>
class Span {
 public:
  using value_type = std::remove_const_t<T>;

  constexpr Span() = default;
  constexpr Span(T* data, std::size_t size) : data_(data), size_(size) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a vector is meant to convert silently, as with std::span.
  Span(std::conditional_t<std::is_const_v<T>, const std::vector<value_type>&, std::vector<value_type>&> values)
      : data_(values.data()), size_(values.size()) {}

  constexpr T* data() const { return data_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T& operator[](std::size_t i) const { return data_[i]; }
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + size_; }
  constexpr T& front() const { return data_[0]; }
  constexpr T& back() const { return data_[size_ - 1]; }
  constexpr Span subspan(std::size_t offset, std::size_t count) const { return Span(data_ + offset, count); }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace automap
