#include "common/base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <type_traits>
#include <utility>

namespace automap {

JsonWatcher::~JsonWatcher() = default;
void JsonWatcher::begin(int, bool) {}
void JsonWatcher::end(int, bool) {}
void JsonWatcher::key(int, const std::string&) {}
void JsonWatcher::value(int) {}

// An array or an object. Only an object has keys, one per value.
struct Json::Node {
  std::vector<Json> values;
  std::vector<std::string> keys;
  Node* next = nullptr;  // of those to destroy

  // Room for one more, so that key and value both come in, or none does.
  void grow() {
    if (values.size() == values.capacity()) values.reserve(std::max<std::size_t>(4, 2 * values.size()));
  }
  void add(std::string key, Json value) {
    grow();
    keys.push_back(std::move(key));
    values.push_back(std::move(value));
  }
};

Json::Json(bool value) noexcept : type_(Type::kBoolean) {
  data_.integer = 0;
  data_.boolean = value;
}
Json::Json(int value) noexcept : Json(static_cast<long>(value)) {}
Json::Json(long value) noexcept : type_(Type::kInteger) {
  data_.integer = value;
}
Json::Json(long long value) noexcept : type_(Type::kInteger) {
  data_.integer = value;
}
Json::Json(unsigned value) noexcept : Json(static_cast<unsigned long>(value)) {}
Json::Json(unsigned long value) noexcept : type_(Type::kUnsigned) {
  data_.whole = value;
}
Json::Json(unsigned long long value) noexcept : type_(Type::kUnsigned) {
  data_.whole = value;
}
Json::Json(double value) noexcept : type_(Type::kFloat) {
  data_.number = value;
}

Json::Json(const char* value) : Json(std::string(value)) {}
Json::Json(const std::string& value) : Json(std::string(value)) {}
Json::Json(std::string_view value) : Json(std::string(value)) {}
Json::Json(std::string&& value) : Json() {
  data_.string = new std::string(std::move(value));
  type_ = Type::kString;
}

Json::Json(std::initializer_list<Json> elements) : Json() {
  const bool object = std::all_of(elements.begin(), elements.end(), [](const Json& element) {
    return element.is_array() && element.size() == 2 && element.data_.node->values[0].is_string();
  });
  make(object ? Type::kObject : Type::kArray);
  data_.node->values.reserve(elements.size());
  if (!object) {
    for (const Json& element : elements) data_.node->values.push_back(element.take());
    return;
  }
  data_.node->keys.reserve(elements.size());
  for (const Json& element : elements) {
    std::vector<Json>& pair = element.data_.node->values;
    // As it is with the library: the first of two members of one key stays.
    if (find(*pair[0].data_.string) != end()) continue;
    data_.node->add(std::move(*pair[0].data_.string), std::move(pair[1]));
  }
}

Json::Json(const std::vector<Json>& values) : Json(std::vector<Json>(values)) {}
Json::Json(std::vector<Json>&& values) : Json() {
  make(Type::kArray);
  data_.node->values = std::move(values);
}
Json::Json(const std::vector<int>& values) : Json() {
  set_all(values);
}
Json::Json(const std::vector<std::int64_t>& values) : Json() {
  set_all(values);
}
Json::Json(const std::vector<std::uint64_t>& values) : Json() {
  set_all(values);
}
Json::Json(const std::vector<float>& values) : Json() {
  set_all(values);
}
Json::Json(const std::vector<double>& values) : Json() {
  set_all(values);
}
Json::Json(const std::vector<std::string>& values) : Json() {
  set_all(values);
}
Json::Json(const std::map<std::string, std::int64_t>& members) : Json() {
  set_all(members);
}
Json::Json(const std::map<std::string, std::uint64_t>& members) : Json() {
  set_all(members);
}
Json::Json(const std::map<std::string, double>& members) : Json() {
  set_all(members);
}
Json::Json(const std::map<std::string, std::string>& members) : Json() {
  set_all(members);
}
Json::Json(const std::map<std::string, std::vector<int>>& members) : Json() {
  set_all(members);
}

template <typename T>
void Json::set_all(const std::vector<T>& values) {
  make(Type::kArray);
  data_.node->values.reserve(values.size());
  for (const T& value : values) data_.node->values.emplace_back(value);
}

template <typename T>
void Json::set_all(const std::map<std::string, T>& members) {
  make(Type::kObject);
  for (const auto& [key, value] : members) data_.node->add(key, value);
}

// Delegates, as all constructors that allocate do: where memory ends, the destructor frees what there is.
Json::Json(const Json& other) : Json() {
  if (other.is_string()) {
    data_.string = new std::string(*other.data_.string);
    type_ = Type::kString;
  } else if (other.has_node()) {
    make(other.type_);
    data_.node->keys = other.data_.node->keys;
    data_.node->values = other.data_.node->values;
  } else {
    type_ = other.type_;
    data_ = other.data_;
  }
}

Json::Json(Json&& other) noexcept : type_(other.type_), data_(other.data_) {
  other.type_ = Type::kNull;
}

Json& Json::operator=(Json other) noexcept {
  std::swap(type_, other.type_);
  std::swap(data_, other.data_);
  return *this;
}

// Neither recursive nor in need of memory: documents may be deep.
Json::~Json() {
  if (is_string()) {
    delete data_.string;
  } else if (has_node()) {
    Node* first = data_.node;
    while (first != nullptr) {
      Node* const node = first;
      first = node->next;
      for (Json& value : node->values) {
        if (!value.has_node()) continue;
        value.data_.node->next = first;
        first = value.data_.node;
        value.type_ = Type::kNull;
      }
      delete node;
    }
  }
}

Json Json::take() const noexcept {
  Json out;
  std::swap(out.type_, type_);
  std::swap(out.data_, data_);
  return out;
}

void Json::make(Type type) {
  data_.node = new Node;
  type_ = type;
}

Json Json::array(std::initializer_list<Json> elements) {
  Json out;
  out.make(Type::kArray);
  out.data_.node->values.reserve(elements.size());
  for (const Json& element : elements) out.data_.node->values.push_back(element.take());
  return out;
}

Json Json::object() {
  Json out;
  out.make(Type::kObject);
  return out;
}

const char* Json::type_name() const noexcept {
  switch (type_) {
    case Type::kNull: return "null";
    case Type::kBoolean: return "boolean";
    case Type::kString: return "string";
    case Type::kArray: return "array";
    case Type::kObject: return "object";
    default: return "number";
  }
}

// The library's texts: some are shown.
void Json::bad_use(int number, const std::string& what) const {
  throw JsonError(JsonError::Kind::kUse,
                  "[json.exception.type_error." + std::to_string(number) + "] " + what + type_name());
}

void Json::no_such(int number, const std::string& what) const {
  throw JsonError(JsonError::Kind::kUse, "[json.exception.out_of_range." + std::to_string(number) + "] " + what);
}

template <typename T>
T Json::arithmetic(bool booleans) const {
  switch (type_) {
    case Type::kInteger: return static_cast<T>(data_.integer);
    case Type::kUnsigned: return static_cast<T>(data_.whole);
    case Type::kFloat: return static_cast<T>(data_.number);
    case Type::kBoolean:
      if (booleans) return static_cast<T>(data_.boolean);
      break;
    default: break;
  }
  bad_use(302, "type must be number, but is ");
}

template <>
bool Json::get<bool>() const {
  if (!is_boolean()) bad_use(302, "type must be boolean, but is ");
  return data_.boolean;
}
template <>
int Json::get<int>() const {
  return arithmetic<int>(true);
}
template <>
unsigned Json::get<unsigned>() const {
  return arithmetic<unsigned>(true);
}
template <>
std::int64_t Json::get<std::int64_t>() const {
  return arithmetic<std::int64_t>(false);
}
template <>
std::uint64_t Json::get<std::uint64_t>() const {
  return arithmetic<std::uint64_t>(false);
}
template <>
float Json::get<float>() const {
  return arithmetic<float>(true);
}
template <>
double Json::get<double>() const {
  return arithmetic<double>(false);
}
template <>
std::string Json::get<std::string>() const {
  return string();
}
template <>
std::vector<int> Json::get<std::vector<int>>() const {
  if (!is_array()) bad_use(302, "type must be array, but is ");
  std::vector<int> out;
  for (const Json& value : *this) out.push_back(value.get<int>());
  return out;
}

const std::string& Json::string() const {
  if (!is_string()) bad_use(302, "type must be string, but is ");
  return *data_.string;
}

std::size_t Json::size() const noexcept {
  if (has_node()) return data_.node->values.size();
  return is_null() ? 0 : 1;
}

const Json* Json::begin() const noexcept {
  return has_node() ? data_.node->values.data() : this;
}
const Json* Json::end() const noexcept {
  return begin() + size();
}
Json* Json::begin() noexcept {
  return has_node() ? data_.node->values.data() : this;
}
Json* Json::end() noexcept {
  return begin() + size();
}

ConstJsonItems Json::items() const noexcept {
  return ConstJsonItems(*this);
}
JsonItems Json::items() noexcept {
  return JsonItems(*this);
}

const std::string& JsonItemsBase::key(const Json& json, std::size_t at, std::string& buffer) {
  if (json.is_object()) return json.data_.node->keys[at];
  if (json.is_array()) buffer = std::to_string(at);
  return buffer;
}

const Json* Json::find(std::string_view key) const noexcept {
  if (!is_object()) return end();
  const std::vector<std::string>& keys = data_.node->keys;
  return begin() + (std::find(keys.begin(), keys.end(), key) - keys.begin());
}
Json* Json::find(std::string_view key) noexcept {
  return const_cast<Json*>(std::as_const(*this).find(key));
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) bad_use(304, "cannot use at() with ");
  const Json* found = find(key);
  if (found == end()) no_such(403, "key '" + std::string(key) + "' not found");
  return *found;
}
Json& Json::at(std::string_view key) {
  return const_cast<Json&>(std::as_const(*this).at(key));
}

const Json& Json::at(std::size_t index) const {
  if (!is_array()) bad_use(304, "cannot use at() with ");
  if (index >= size()) no_such(401, "array index " + std::to_string(index) + " is out of range");
  return data_.node->values[index];
}
Json& Json::at(std::size_t index) {
  return const_cast<Json&>(std::as_const(*this).at(index));
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) make(Type::kObject);
  if (!is_object()) bad_use(305, "cannot use operator[] with a string argument with ");
  Json* found = find(key);
  if (found != end()) return *found;
  data_.node->add(std::string(key), Json());
  return data_.node->values.back();
}

const Json& Json::back() const {
  if (empty()) no_such(401, "there is no last element");
  return *(end() - 1);
}
Json& Json::back() {
  return const_cast<Json&>(std::as_const(*this).back());
}

Json Json::value(std::string_view key, Json fallback) const {
  if (!is_object()) bad_use(306, "cannot use value() with ");
  const Json* found = find(key);
  return found == end() ? std::move(fallback) : *found;
}

void Json::push_back(Json value) {
  if (is_null()) make(Type::kArray);
  if (!is_array()) bad_use(308, "cannot use push_back() with ");
  data_.node->values.push_back(std::move(value));
}

void Json::update(const Json& members) {
  if (is_null()) make(Type::kObject);
  if (!is_object()) bad_use(312, "cannot use update() with ");
  if (!members.is_object()) members.bad_use(312, "cannot use update() with ");
  for (const auto& [key, value] : members.items()) (*this)[key] = value;
}

bool Json::erase(std::string_view key) noexcept {
  const Json* found = find(key);
  if (found == end()) return false;
  const auto at = found - begin();
  data_.node->keys.erase(data_.node->keys.begin() + at);
  data_.node->values.erase(data_.node->values.begin() + at);
  return true;
}

Json Json::sorted() const {
  if (!has_node()) return *this;
  Json out;
  out.make(type_);
  Node& made = *out.data_.node;
  std::vector<std::size_t> order(size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (is_object()) {
    const std::vector<std::string>& keys = data_.node->keys;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
    for (const std::size_t i : order) made.keys.push_back(keys[i]);
  }
  for (const std::size_t i : order) made.values.push_back(data_.node->values[i].sorted());
  return out;
}

// As the library compares: unsigned with signed as signed ones, and those with floating ones as such.
bool Json::equals(const Json& other) const noexcept {
  if (is_number() && other.is_number()) {
    if (is_number_float() || other.is_number_float())
      return arithmetic<double>(false) == other.arithmetic<double>(false);
    return arithmetic<std::int64_t>(false) == other.arithmetic<std::int64_t>(false);
  }
  if (type_ != other.type_) return false;
  switch (type_) {
    case Type::kNull: return true;
    case Type::kBoolean: return data_.boolean == other.data_.boolean;
    case Type::kString: return *data_.string == *other.data_.string;
    default: return data_.node->keys == other.data_.node->keys && data_.node->values == other.data_.node->values;
  }
}

namespace {

using Library = nlohmann::ordered_json;

// Builds the value while the library reads.
class Builder {
 public:
  Builder(Json& root, JsonWatcher* watcher) : root_(root), watcher_(watcher) {}
  // Json::parse_elements.
  void hand_over(std::string_view key, const std::function<void(const Json&)>& each) {
    key_ = key;
    each_ = &each;
  }

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Library::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(true); }
  bool end_object() { return close(true); }
  bool start_array(std::size_t) { return open(false); }
  bool end_array() { return close(false); }
  bool key(const std::string& key) {
    if (watcher_ != nullptr) watcher_->key(depth(), key);
    if (each_ != nullptr && depth() == 1) in_key_ = key == key_;
    member_ = &(*open_.back())[key];
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    const auto* syntax = dynamic_cast<const nlohmann::detail::parse_error*>(&error);
    throw JsonError(syntax != nullptr ? JsonError::Kind::kSyntax : JsonError::Kind::kRange, error.what(),
                    syntax != nullptr ? syntax->byte : 0);
  }

 private:
  int depth() const { return static_cast<int>(open_.size()); }
  Json& place() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return *member_;
    open_.back()->push_back(Json());
    return open_.back()->back();
  }
  bool add(Json value) {
    if (watcher_ != nullptr) watcher_->value(depth());
    place() = std::move(value);
    pass_on();
    return true;
  }
  bool open(bool object) {
    if (watcher_ != nullptr) watcher_->begin(depth(), object);
    const bool elements = !object && each_ != nullptr && (depth() == 0 || (depth() == 1 && in_key_));
    Json& at = place();
    at = object ? Json::object() : Json::array();
    open_.push_back(&at);
    if (elements) elements_ = &at;
    return true;
  }
  bool close(bool object) {
    if (open_.back() == elements_) elements_ = nullptr;
    open_.pop_back();
    if (watcher_ != nullptr) watcher_->end(depth(), object);
    pass_on();
    return true;
  }
  // A value is whole: one of the elements goes to each_.
  void pass_on() {
    if (open_.empty() || open_.back() != elements_) return;
    (*each_)(elements_->back());
    *elements_ = Json::array();
  }

  Json& root_;
  JsonWatcher* watcher_;
  std::vector<Json*> open_;  // each the last value of the one before, which does not move while this one is open
  Json* member_ = nullptr;
  std::string_view key_;
  const std::function<void(const Json&)>* each_ = nullptr;
  bool in_key_ = false;       // of the document, the member that is read is key_
  Json* elements_ = nullptr;  // the array whose elements go to each_, while it is open
};

// Writes numbers and strings as the library does, and everything around them in its layout.
class Writer {
 public:
  Writer(std::string& out, int indent, Json::BadUtf8 bad)
      : out_(out),
        indent_(indent),
        leaves_(nlohmann::detail::output_adapter<char>(out), ' ',
                bad == Json::BadUtf8::kReplace ? Library::error_handler_t::replace : Library::error_handler_t::strict) {
  }

  void write(const Json& json, std::size_t margin) {
    if (json.is_string()) return text(json.string());
    if (json.is_number_float()) return leaf(json.get<double>());
    if (json.is_number_unsigned()) return append(std::to_string(json.get<std::uint64_t>()));
    if (json.is_number_integer()) return append(std::to_string(json.get<std::int64_t>()));
    if (json.is_boolean()) return append(json.get<bool>() ? "true" : "false");
    if (json.is_null()) return append("null");
    const bool object = json.is_object();
    const std::size_t inner = margin + static_cast<std::size_t>(std::max(indent_, 0));
    out_ += object ? '{' : '[';
    const char* separator = "";
    for (const auto& [key, value] : json.items()) {
      out_ += separator;
      separator = ",";
      line(inner);
      if (object) {
        text(key);
        out_ += indent_ >= 0 ? ": " : ":";
      }
      write(value, inner);
    }
    if (!json.empty()) line(margin);
    out_ += object ? '}' : ']';
  }

 private:
  void append(std::string_view part) { out_ += part; }
  void line(std::size_t margin) {
    if (indent_ >= 0) out_.append("\n").append(margin, ' ');
  }
  void text(const std::string& value) {
    const bool plain =
        std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c < 0x7F && c != '"' && c != '\\'; });
    if (!plain) return leaf(value);
    out_ += '"';
    out_ += value;
    out_ += '"';
  }
  void leaf(const Library& value) { leaves_.dump(value, false, false, 0); }

  std::string& out_;
  int indent_;
  nlohmann::detail::serializer<Library> leaves_;
};

}  // namespace

Json Json::parse(std::string_view text, JsonWatcher* watcher) {
  Json out;
  Builder builder(out, watcher);
  Library::sax_parse(text.begin(), text.end(), &builder);
  return out;
}

Json Json::parse_elements(std::string_view text, std::string_view key, const std::function<void(const Json&)>& each,
                          JsonWatcher* watcher) {
  Json out;
  Builder builder(out, watcher);
  builder.hand_over(key, each);
  Library::sax_parse(text.begin(), text.end(), &builder);
  return out;
}

Json Json::parse_or_null(std::string_view text) {
  try {
    return parse(text);
  } catch (const JsonError&) {
    return Json();
  }
}

std::string Json::dump(int indent, BadUtf8 bad) const {
  std::string out;
  try {
    Writer(out, indent, bad).write(*this, 0);
  } catch (const Library::exception& error) {
    throw JsonError(JsonError::Kind::kUse, error.what());
  }
  return out;
}

std::ostream& Json::print(std::ostream& out) const {
  return out << dump(-1, BadUtf8::kReplace);
}

namespace {

// A key as JSON pointers write it.
std::string step_of(const std::string& key) {
  std::string out = "/";
  for (const char c : key) {
    out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return out;
}

void add_differences(const Json& have, const Json& want, const std::string& path, std::vector<JsonDifference>* out) {
  if (have == want) return;
  const bool arrays = have.is_array() && want.is_array();
  if (!arrays && !(have.is_object() && want.is_object())) {
    out->push_back({path, have.dump(), want.dump()});
    return;
  }
  if (arrays) {
    const std::size_t both = std::min(have.size(), want.size());
    for (std::size_t i = 0; i < both; ++i) add_differences(have[i], want[i], path + "/" + std::to_string(i), out);
    for (std::size_t i = have.size(); i > both; --i) {
      out->push_back({path + "/" + std::to_string(i - 1), have[i - 1].dump(), "nothing"});
    }
    // "-": behind the last one.
    for (std::size_t i = both; i < want.size(); ++i) out->push_back({path + "/-", "nothing", "nothing"});
    return;
  }
  for (const auto& [key, value] : have.items()) {
    if (const Json* other = want.find(key); other != want.end()) {
      add_differences(value, *other, path + step_of(key), out);
    } else {
      out->push_back({path + step_of(key), value.dump(), "nothing"});
    }
  }
  for (const auto& [key, value] : want.items()) {
    if (!have.contains(key)) out->push_back({path + step_of(key), "nothing", value.dump()});
  }
}

}  // namespace

std::vector<JsonDifference> json_differences(const Json& have, const Json& want) {
  std::vector<JsonDifference> out;
  add_differences(have, want, "", &out);
  return out;
}

}  // namespace automap
