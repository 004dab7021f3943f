// A JSON value, as documents are read into it and written from it. The calls are spelled as nlohmann::ordered_json's,
// which parses and writes behind it (json.cpp); this header costs little where it is included. Documents as text for
// users: json_text.h; read strictly: json_reader.h, json_object.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace automap {

// A text that is not JSON, or a value of another type than it was used as. Where a file may be the cause it is caught
// and reported as an Error; else it is a bug.
class JsonError : public std::runtime_error {
 public:
  enum class Kind {
    kSyntax,  // byte() of the text, from 1, is where
    kRange,   // a number beyond double
    kUse      // a key or an index that is missing, another type
  };
  JsonError(Kind kind, const std::string& what, std::size_t byte = 0)
      : std::runtime_error(what), kind_(kind), byte_(byte) {}

  Kind kind() const { return kind_; }
  std::size_t byte() const { return byte_; }

 private:
  Kind kind_;
  std::size_t byte_;
};

// Sees a text while it is parsed, and may throw. `depth` is the number of arrays and objects that are open around it.
class JsonWatcher {
 public:
  virtual ~JsonWatcher();
  virtual void begin(int depth, bool object);  // of an array or an object
  virtual void end(int depth, bool object);
  virtual void key(int depth, const std::string& key);
  virtual void value(int depth);  // neither array nor object
};

class JsonItems;
class ConstJsonItems;

// Null, a boolean, a number (signed, unsigned as parsed numbers from 0 are, or floating), a string, an array, or an
// object, whose members keep their order and are compared in that order. Numbers of all kinds are compared by value: 1
// == 1.0. Members are found one by one: objects are small. Members that throw JsonError(kUse) say so.
class Json {
 public:
  enum class BadUtf8 { kThrow, kReplace };

  Json() noexcept : type_(Type::kNull) { data_.integer = 0; }
  Json(std::nullptr_t) noexcept : Json() {}
  Json(bool value) noexcept;
  Json(int value) noexcept;
  Json(long value) noexcept;
  Json(long long value) noexcept;
  Json(unsigned value) noexcept;
  Json(unsigned long value) noexcept;
  Json(unsigned long long value) noexcept;
  Json(double value) noexcept;
  Json(const char* value);
  Json(const std::string& value);
  Json(std::string&& value);
  Json(std::string_view value);
  Json(const void*) = delete;  // no pointer is a boolean
  // {{"a", 1}, {"b", 2}}: an object, where every element is an array of two that begins with a string; else an array.
  // The elements are moved from the list. A list of one Json alone, {value}, is that value: write array({value}) for an
  // array.
  Json(std::initializer_list<Json> elements);
  Json(const std::vector<Json>& values);
  Json(std::vector<Json>&& values);
  Json(const std::vector<int>& values);
  Json(const std::vector<std::int64_t>& values);
  Json(const std::vector<std::uint64_t>& values);
  Json(const std::vector<float>& values);
  Json(const std::vector<double>& values);
  Json(const std::vector<std::string>& values);
  Json(const std::map<std::string, std::int64_t>& members);
  Json(const std::map<std::string, std::uint64_t>& members);
  Json(const std::map<std::string, double>& members);
  Json(const std::map<std::string, std::string>& members);
  Json(const std::map<std::string, std::vector<int>>& members);
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();

  static Json array(std::initializer_list<Json> elements = {});
  static Json object();

  // Throws JsonError(kSyntax, kRange), and exceptions of `watcher`. If a key comes twice the last value counts.
  static Json parse(std::string_view text, JsonWatcher* watcher = nullptr);
  static Json parse_or_null(std::string_view text);  // null for what is no JSON
  // The same of a document that is too large to be kept: the elements of its array `key` (or of the document, where it
  // is an array) go to `each` as they come and are dropped behind it. That array is empty in what is returned.
  static Json parse_elements(std::string_view text, std::string_view key, const std::function<void(const Json&)>& each,
                             JsonWatcher* watcher = nullptr);
  // As text; `indent` below 0: on one line. Numbers that are not finite become null. Throws JsonError(kUse) for a
  // string that is not UTF-8, or writes U+FFFD.
  std::string dump(int indent = -1, BadUtf8 bad = BadUtf8::kThrow) const;

  bool is_null() const noexcept { return type_ == Type::kNull; }
  bool is_boolean() const noexcept { return type_ == Type::kBoolean; }
  bool is_number() const noexcept { return is_number_integer() || is_number_float(); }
  bool is_number_integer() const noexcept { return type_ == Type::kInteger || type_ == Type::kUnsigned; }
  bool is_number_unsigned() const noexcept { return type_ == Type::kUnsigned; }
  bool is_number_float() const noexcept { return type_ == Type::kFloat; }
  bool is_string() const noexcept { return type_ == Type::kString; }
  bool is_array() const noexcept { return type_ == Type::kArray; }
  bool is_object() const noexcept { return type_ == Type::kObject; }
  const char* type_name() const noexcept;

  // bool, int, unsigned, std::int64_t, std::uint64_t, float, double, std::string, std::vector<int>. Numbers are
  // converted to each other; throws for another type.
  template <typename T>
  T get() const;
  template <typename T>
  void get_to(T& out) const {
    out = get<T>();
  }
  const std::string& string() const;  // throws for another type

  // 0 for null, 1 for a value that is neither an array nor an object.
  std::size_t size() const noexcept;
  bool empty() const noexcept { return size() == 0; }

  // Elements of an array, values of an object; another value is its only element, null has none.
  const Json* begin() const noexcept;
  const Json* end() const noexcept;
  Json* begin() noexcept;
  Json* end() noexcept;
  // Key and value of each: for (const auto& [key, value] : json.items()). Arrays have "0", "1", ..., other values "".
  ConstJsonItems items() const noexcept;
  JsonItems items() noexcept;

  // The value of a key of an object; anything else gives end() and false.
  const Json* find(std::string_view key) const noexcept;
  Json* find(std::string_view key) noexcept;
  bool contains(std::string_view key) const noexcept { return find(key) != end(); }

  // Throw where there is none.
  const Json& at(std::string_view key) const;
  Json& at(std::string_view key);
  const Json& at(std::size_t index) const;
  Json& at(std::size_t index);
  const Json& at(int index) const { return at(static_cast<std::size_t>(index)); }
  Json& at(int index) { return at(static_cast<std::size_t>(index)); }
  const Json& at(const char* key) const { return at(std::string_view(key)); }
  Json& at(const char* key) { return at(std::string_view(key)); }
  const Json& operator[](std::string_view key) const { return at(key); }
  const Json& operator[](const char* key) const { return at(std::string_view(key)); }
  const Json& operator[](std::size_t index) const { return at(index); }
  const Json& operator[](int index) const { return at(static_cast<std::size_t>(index)); }
  Json& operator[](std::size_t index) { return at(index); }
  Json& operator[](int index) { return at(static_cast<std::size_t>(index)); }
  // Adds a missing key with null; null becomes an object. Throws for any other value that is not an object.
  Json& operator[](std::string_view key);
  Json& operator[](const char* key) { return (*this)[std::string_view(key)]; }

  const Json& back() const;
  Json& back();
  // The value of `key`, or `fallback` where there is none. Throws for a value that is not an object.
  Json value(std::string_view key, Json fallback) const;

  // Null becomes an array. Throws for any other value that is not an array.
  void push_back(Json value);
  // Takes every member of an object. Null becomes an object. Throws for a value that is not an object.
  void update(const Json& members);
  // Returns true if the key existed.
  bool erase(std::string_view key) noexcept;
  // The same with the members of all objects in the order of their keys.
  Json sorted() const;

  friend bool operator==(const Json& a, const Json& b) noexcept { return a.equals(b); }
  friend bool operator!=(const Json& a, const Json& b) noexcept { return !a.equals(b); }
  friend std::ostream& operator<<(std::ostream& out, const Json& value) { return value.print(out); }

 private:
  friend class JsonItemsBase;
  struct Node;
  enum class Type : std::uint8_t { kNull, kBoolean, kInteger, kUnsigned, kFloat, kString, kArray, kObject };
  union Data {
    bool boolean;
    std::int64_t integer;
    std::uint64_t whole;
    double number;
    std::string* string;
    Node* node;
  };

  bool has_node() const noexcept { return type_ == Type::kArray || type_ == Type::kObject; }
  Json take() const noexcept;
  void make(Type type);
  bool equals(const Json& other) const noexcept;
  std::ostream& print(std::ostream& out) const;
  template <typename T>
  void set_all(const std::vector<T>& values);
  template <typename T>
  void set_all(const std::map<std::string, T>& members);
  template <typename T>
  T arithmetic(bool booleans) const;
  [[noreturn]] void bad_use(int number, const std::string& what) const;
  [[noreturn]] void no_such(int number, const std::string& what) const;

  // Mutable, so that the elements of an initializer list are moved from it, not copied.
  mutable Type type_;
  mutable Data data_;
};

template <>
bool Json::get<bool>() const;
template <>
int Json::get<int>() const;
template <>
unsigned Json::get<unsigned>() const;
template <>
std::int64_t Json::get<std::int64_t>() const;
template <>
std::uint64_t Json::get<std::uint64_t>() const;
template <>
float Json::get<float>() const;
template <>
double Json::get<double>() const;
template <>
std::string Json::get<std::string>() const;
template <>
std::vector<int> Json::get<std::vector<int>>() const;

// Ranges for Json::items().
template <typename J>
struct JsonMember {
  const std::string& key;
  J& value;
};

class JsonItemsBase {
 protected:
  explicit JsonItemsBase(const Json& json) noexcept : json_(&json) {}
  static const std::string& key(const Json& json, std::size_t at, std::string& buffer);

  template <typename J>
  class Iterator {
   public:
    Iterator(J* json, std::size_t at) : json_(json), at_(at) {}
    JsonMember<J> operator*() { return {key(*json_, at_, buffer_), json_->begin()[at_]}; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    J* json_;
    std::size_t at_;
    std::string buffer_;
  };

  const Json* json_;
};

class ConstJsonItems : public JsonItemsBase {
 public:
  explicit ConstJsonItems(const Json& json) noexcept : JsonItemsBase(json) {}
  Iterator<const Json> begin() const { return {json_, 0}; }
  Iterator<const Json> end() const { return {json_, json_->size()}; }
};

class JsonItems : public JsonItemsBase {
 public:
  explicit JsonItems(Json& json) noexcept : JsonItemsBase(json) {}
  Iterator<Json> begin() const { return {const_cast<Json*>(json_), 0}; }
  Iterator<Json> end() const { return {const_cast<Json*>(json_), json_->size()}; }
};

// The differences of two documents, by path ("/rows/0/points", as JSON pointers are), in the order of the changes that
// turn one into the other: removals and changes first, additions last. `have` and `want` as JSON, or "nothing".
struct JsonDifference {
  std::string path, have, want;
};
std::vector<JsonDifference> json_differences(const Json& have, const Json& want);

}  // namespace automap
