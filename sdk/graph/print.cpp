#include <belay/graph/dtype.hpp>
#include <belay/graph/string_table.hpp>
#include <belay/graph/verify.hpp>
#include <belay/graph/view.hpp>

#include <charconv>
#include <cstdio>

namespace belay::graph {
namespace {

constexpr size_t kShownItems = 16;  // of a list of numbers; the rest is counted
constexpr size_t kShownText = 200;  // bytes of a string

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text.substr(0, kShownText)) {
    if (c == '"' || c == '\\') {
      (out += '\\') += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (uint8_t(c) < 0x20 || c == 0x7f) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02x", uint8_t(c));
      out += code;
    } else {
      out += c;
    }
  }
  out += '"';
  if (text.size() > kShownText) out += "...(" + std::to_string(text.size()) + " bytes)";
}

template <class Number>
std::string number(Number value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

class Printer {
 public:
  Printer(belay_span image, belay_sink sink) : view_(image), sink_(sink) {}

  void run() {
    const belay_graph_image& h = view_.header();
    line(0, "belay graph version " + std::to_string(h.version));
    for (const auto& pair : view_.section<belay_graph_pair>(h.metadata)) {
      std::string text = "meta ";
      append_quoted(text, view_.string(pair.key));
      append_quoted(text += " = ", view_.string(pair.value));
      line(0, text);
    }
    for (size_t i = 0; i < view_.sources().size(); ++i) {
      std::string text = "source " + std::to_string(i) + " ";
      append_quoted(text, view_.string(view_.sources()[i].name));
      line(0, text + " " + std::to_string(view_.sources()[i].bytes) + " bytes");
    }
    // Values by graph, so that the whole is linear.
    constants_.resize(h.graphs.count);
    for (uint32_t v = 0; v < view_.values().size(); ++v) {
      const belay_graph_value& value = view_.values()[v];
      if (value.constant != BELAY_NONE && !(value.flags & BELAY_VALUE_IS_INPUT))
        constants_[value.graph].push_back(v);
    }
    graph(0, 0);
  }

 private:
  void line(int indent, std::string_view text) {
    std::string out(size_t(indent) * 2, ' ');
    write(sink_, out.append(text).append("\n"));
  }

  std::string value_name(uint32_t v) const {
    if (v == BELAY_NONE) return "_";
    const std::string_view name = view_.string(view_.values()[v].name);
    std::string out = "%";
    if (name.empty()) return out + std::to_string(v);
    for (const char c : name)
      if (!(c == '_' || c == '.' || c == '/' || c == ':' || c == '-' || (c >= '0' && c <= '9') ||
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
        append_quoted(out, name);
        return out;
      }
    return out.append(name);
  }

  std::string dims_text(std::span<const belay_graph_dim> dims) const {
    std::string out = "[";
    for (size_t i = 0; i < dims.size(); ++i) {
      if (i > 0) out += ",";
      if (dims[i].value >= 0) {
        out += std::to_string(dims[i].value);
      } else if (dims[i].symbol != BELAY_NONE) {
        out += view_.string(dims[i].symbol);
      } else {
        out += "?";
      }
    }
    return out + "]";
  }

  std::string type_text(uint32_t index) const {
    if (index == BELAY_NONE) return "?";
    const belay_graph_type& type = view_.types()[index];
    switch (type.kind) {
      case BELAY_TYPE_SEQUENCE:
        return "sequence(" + type_text(type.element) + ")";
      case BELAY_TYPE_OPTIONAL:
        return "optional(" + type_text(type.element) + ")";
      case BELAY_TYPE_MAP:
        return "map(" + std::string(dtype_name(type.dtype)) + "," + type_text(type.element) + ")";
      default:
        break;
    }
    const std::string name(dtype_name(type.dtype));
    if (type.shape == BELAY_NONE) return name + "[...]";
    return name +
           dims_text(view_.dims(view_.section<belay_graph_shape>(view_.header().shapes)[type.shape].dims));
  }

  std::string constant_text(uint32_t index) const {
    const belay_graph_constant& c = view_.constants()[index];
    std::string out = std::string(dtype_name(c.dtype)) + dims_text(view_.dims(c.dims));
    if (c.source != BELAY_NONE)
      return out + " source " + std::to_string(c.source) + " offset " + std::to_string(c.offset) + " bytes " +
             std::to_string(c.bytes);
    const belay_span bytes = view_.constant_bytes(c, {});
    const uint64_t count = *element_count(view_.constant_dims(c));
    out += " {";
    for (uint64_t i = 0; i < count && i < kShownItems; ++i) {
      if (i > 0) out += ", ";
      out += element(c.dtype, bytes, count, i);
    }
    if (count > kShownItems) out += ", ... " + std::to_string(count) + " elements";
    return out + "}";
  }

  static std::string element(uint32_t dtype, belay_span bytes, uint64_t count, uint64_t i) {
    const auto get = [&]<class T>(T value) {
      std::memcpy(&value, static_cast<const char*>(bytes.ptr) + i * sizeof value, sizeof value);
      return value;
    };
    switch (dtype) {
      case BELAY_DT_FLOAT32:
        return number(get(float{}));
      case BELAY_DT_FLOAT64:
        return number(get(double{}));
      case BELAY_DT_UINT8:
        return number(unsigned{get(uint8_t{})});
      case BELAY_DT_INT8:
        return number(int{get(int8_t{})});
      case BELAY_DT_UINT16:
        return number(get(uint16_t{}));
      case BELAY_DT_INT16:
        return number(get(int16_t{}));
      case BELAY_DT_INT32:
        return number(get(int32_t{}));
      case BELAY_DT_INT64:
        return number(get(int64_t{}));
      case BELAY_DT_UINT32:
        return number(get(uint32_t{}));
      case BELAY_DT_UINT64:
        return number(get(uint64_t{}));
      case BELAY_DT_BOOL:
        return get(uint8_t{}) ? "true" : "false";
      case BELAY_DT_STRING: {
        std::string out;
        append_quoted(out, string_element(bytes, count, i));
        return out;
      }
      default:
        break;
    }
    // Of other types the bits: exact, and no reader is needed for each.
    const uint32_t bits = find_dtype(dtype)->bits;
    std::string out = "0x";
    char digits[8];
    if (bits < 8) {
      const uint64_t at =
          i * bits;  // 6-bit elements may cross a byte; they are shown by the byte they begin in
      std::snprintf(digits, sizeof digits, "%x",
                    (static_cast<const uint8_t*>(bytes.ptr)[at / 8] >> at % 8) & ((1u << bits) - 1u));
      return out + digits;
    }
    for (uint32_t byte = bits / 8; byte-- > 0;) {
      std::snprintf(digits, sizeof digits, "%02x",
                    static_cast<const uint8_t*>(bytes.ptr)[i * (bits / 8) + byte]);
      out += digits;
    }
    return out;
  }

  template <class Items, class Text>
  static std::string list_text(const Items& items, Text&& text) {
    std::string out = "[";
    for (size_t i = 0; i < items.size() && i < kShownItems; ++i) {
      if (i > 0) out += ",";
      out += text(items[i]);
    }
    if (items.size() > kShownItems) out += ",... " + std::to_string(items.size()) + " items";
    return out + "]";
  }

  std::string attribute_text(const belay_graph_attribute& at) const {
    const auto as_string = [&](uint32_t i) {
      std::string out;
      append_quoted(out, view_.string(i));
      return out;
    };
    const auto as_constant = [&](uint32_t i) { return constant_text(i); };
    const auto as_graph = [](uint32_t i) { return "graph " + std::to_string(i); };
    const auto ints = view_.section<int64_t>(view_.header().ints);
    const auto floats = view_.section<float>(view_.header().floats);
    const belay_list list = at.values;
    switch (at.kind) {
      case BELAY_ATTR_FLOAT:
        return number(floats[list.first]);
      case BELAY_ATTR_INT:
        return number(ints[list.first]);
      case BELAY_ATTR_STRING:
        return as_string(view_.indices(list)[0]);
      case BELAY_ATTR_TENSOR:
        return as_constant(view_.indices(list)[0]);
      case BELAY_ATTR_GRAPH:
        return as_graph(view_.indices(list)[0]);
      case BELAY_ATTR_TYPE:
        return type_text(view_.indices(list)[0]);
      case BELAY_ATTR_FLOATS:
        return list_text(floats.subspan(list.first, list.count), [](float v) { return number(v); });
      case BELAY_ATTR_INTS:
        return list_text(ints.subspan(list.first, list.count), [](int64_t v) { return number(v); });
      case BELAY_ATTR_STRINGS:
        return list_text(view_.indices(list), as_string);
      case BELAY_ATTR_TENSORS:
        return list_text(view_.indices(list), as_constant);
      case BELAY_ATTR_GRAPHS:
        return list_text(view_.indices(list), as_graph);
      default:
        return "?";
    }
  }

  std::string typed(uint32_t v) const { return value_name(v) + " " + type_text(view_.values()[v].type); }

  // "[axis 1 scale %s zero %z]" of a quantised value, else nothing.
  std::string quant_text(uint32_t v) const {
    const uint32_t at = view_.values()[v].quant;
    if (at == BELAY_NONE) return "";
    const belay_graph_quant& quant = view_.section<belay_graph_quant>(view_.header().quants)[at];
    std::string out = " quant(";
    if (quant.kind != BELAY_QUANT_TENSOR) out += "axis " + std::to_string(quant.axis) + ", ";
    if (quant.kind == BELAY_QUANT_BLOCK) out += "block " + std::to_string(quant.block) + ", ";
    out += "scale " + value_name(quant.scale);
    if (quant.zero_point != BELAY_NONE) out += ", zero point " + value_name(quant.zero_point);
    return out + ")";
  }

  void graph(uint32_t g, int indent) {
    const belay_graph_graph& graph = view_.graphs()[g];
    std::string head = "graph " + std::to_string(g) + " ";
    append_quoted(head, view_.string(graph.name));
    line(indent, head + " {");
    for (const uint32_t v : view_.indices(graph.inputs)) {
      std::string text = "input " + typed(v);
      if (const uint32_t c = view_.values()[v].constant; c != BELAY_NONE) text += " = " + constant_text(c);
      line(indent + 1, text + quant_text(v));
    }
    for (const uint32_t v : view_.indices(graph.captures)) line(indent + 1, "capture " + value_name(v));
    for (const uint32_t v : constants_[g])
      line(indent + 1,
           "constant " + value_name(v) + " " + constant_text(view_.values()[v].constant) + quant_text(v));
    for (uint32_t n = graph.nodes.first; n < graph.nodes.first + graph.nodes.count; ++n) node(n, indent + 1);
    for (const uint32_t v : view_.indices(graph.outputs)) line(indent + 1, "output " + typed(v));
    line(indent, "}");
  }

  void node(uint32_t n, int indent) {
    const NodeView node = view_.node(n);
    std::string text;
    for (const uint32_t v : node.outputs()) {
      if (!text.empty()) text += ", ";
      text += v == BELAY_NONE ? "_" : typed(v) + quant_text(v);
    }
    text += " = ";
    if (!node.domain().empty()) text.append(node.domain()).append(":");
    text.append(node.op()).append(".").append(std::to_string(node.version())).append("(");
    for (size_t i = 0; i < node.inputs().size(); ++i)
      text.append(i > 0 ? ", " : "").append(value_name(node.input(i)));
    text += ")";
    const belay_list list = node.raw().attributes;
    for (const auto& at : view_.attributes().subspan(list.first, list.count))
      text.append(" ").append(view_.string(at.name)).append("=").append(attribute_text(at));
    for (const uint32_t before : view_.indices(node.raw().control_inputs))
      text += " after " + std::to_string(before);
    if (!node.name().empty()) append_quoted(text += " ", node.name());
    line(indent, text);
    for (const auto& at : view_.attributes().subspan(list.first, list.count))
      if (at.kind == BELAY_ATTR_GRAPH || at.kind == BELAY_ATTR_GRAPHS)
        for (const uint32_t sub : view_.indices(at.values)) graph(sub, indent + 1);
  }

  View view_;
  belay_sink sink_;
  std::vector<std::vector<uint32_t>> constants_;  // of each graph, but for inputs
};

}  // namespace

void print(belay_span image, belay_sink text) { Printer(image, text).run(); }

}  // namespace belay::graph
