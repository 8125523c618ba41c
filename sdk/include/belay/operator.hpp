// belay/operator.hpp: single operators in C++: header-only over belay/runtime.h.
//
//   const belay::Operator conv = belay::Operator("Conv").attribute("pads", {1, 1, 1, 1});
//   BELAY_ASSIGN(belay::Event done, conv.run(runtime, stream, {image, weights}, {answer}));
//
// What is prepared for a signature is kept by the runtime: an Operator is a description and cheap to make
// again.
#pragma once

#include <belay/runtime.hpp>

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace belay {

// An operator and its attributes. Const calls are thread-safe.
class Operator {
 public:
  // `version`: of the operator set; 0: 17. `domain`: "" is ONNX's own.
  explicit Operator(std::string op, uint64_t version = 0, std::string domain = {})
      : op_(std::move(op)), domain_(std::move(domain)), version_(version) {}

  Operator&& attribute(std::string name, int64_t value) && {
    return keep(std::move(name), std::vector{value}, true);
  }
  Operator&& attribute(std::string name, int value) && {
    return std::move(*this).attribute(std::move(name), int64_t{value});
  }
  Operator&& attribute(std::string name, float value) && {
    return keep(std::move(name), std::vector{value}, true);
  }
  Operator&& attribute(std::string name, const char* value) && {
    return keep(std::move(name), std::vector<std::string>{value}, true);
  }
  Operator&& attribute(std::string name, std::initializer_list<int64_t> values) && {
    return keep(std::move(name), std::vector<int64_t>(values), false);
  }
  Operator&& attribute(std::string name, std::vector<int64_t> values) && {
    return keep(std::move(name), std::move(values), false);
  }
  Operator&& attribute(std::string name, std::vector<float> values) && {
    return keep(std::move(name), std::move(values), false);
  }
  Operator&& attribute(std::string name, std::vector<std::string> values) && {
    return keep(std::move(name), std::move(values), false);
  }
  Operator&& attribute(std::string name, Tensor value) && {
    return keep(std::move(name), std::move(value), true);
  }
  // Input `index` is read when the operator is queued and is part of what is prepared: shapes, axes, weights.
  Operator&& constant(uint64_t index) && {
    constants_ |= index < 64 ? uint64_t{1} << index : 0;
    return std::move(*this);
  }

  // Queues it. A Tensor() is an operand that is absent, or not wanted. Elements stay in place until the
  // event.
  Result<Event> run(const Runtime& runtime, const Stream& stream, const std::vector<Tensor>& inputs,
                    const std::vector<Tensor>& outputs) const {
    const Request request(*this, inputs, outputs);
    belay_event event{};
    BELAY_TRY(take(belay_op_run(runtime.get(), stream.get(), &request.req, &event)));
    return Event(stream.hal(), event);
  }
  // Prepares it for operands of these types and shapes; only constant inputs need elements.
  Status prepare(const Runtime& runtime, const Device& device, const std::vector<Tensor>& inputs,
                 const std::vector<Tensor>& outputs) const {
    const Request request(*this, inputs, outputs);
    return take(belay_op_prepare(runtime.get(), device.get(), &request.req));
  }

 private:
  struct Attribute {
    std::string name;
    std::variant<std::vector<int64_t>, std::vector<float>, std::vector<std::string>, Tensor> values;
    bool single;
  };
  template <class Values>
  Operator&& keep(std::string name, Values values, bool single) {
    attributes_.push_back({std::move(name), std::move(values), single});
    return std::move(*this);
  }

  // The C form of one call; refers to the operator and the tensors.
  struct Request {
    Request(const Operator& of, const std::vector<Tensor>& in, const std::vector<Tensor>& out) {
      req.hdr.struct_size = sizeof req;
      req.op = to_str(of.op_);
      req.domain = to_str(of.domain_);
      req.version = of.version_;
      req.constant_inputs = of.constants_;
      for (const Attribute& attribute : of.attributes_) add(attribute);
      list(in, inputs), list(out, outputs);
      req.attributes = attributes.data(), req.attribute_count = attributes.size();
      req.inputs = inputs.data(), req.input_count = inputs.size();
      req.outputs = outputs.data(), req.output_count = outputs.size();
    }
    Request(const Request&) = delete;

    void add(const Attribute& from) {
      belay_op_attribute& raw = raw_attributes.emplace_back();
      raw.hdr.struct_size = sizeof raw;
      raw.name = to_str(from.name);
      if (const auto* ints = std::get_if<std::vector<int64_t>>(&from.values)) {
        set(raw, *ints, from.single ? BELAY_ATTR_INT : BELAY_ATTR_INTS);
      } else if (const auto* floats = std::get_if<std::vector<float>>(&from.values)) {
        set(raw, *floats, from.single ? BELAY_ATTR_FLOAT : BELAY_ATTR_FLOATS);
      } else if (const auto* texts = std::get_if<std::vector<std::string>>(&from.values)) {
        std::vector<belay_str>& views = strings.emplace_back();
        for (const std::string& text : *texts) views.push_back(to_str(text));
        set(raw, views, from.single ? BELAY_ATTR_STRING : BELAY_ATTR_STRINGS);
      } else {
        raw.kind = BELAY_ATTR_TENSOR, raw.count = 1;
        raw.values = &raw_tensors.emplace_back(std::get<Tensor>(from.values).raw());
      }
      attributes.push_back(&raw);
    }
    template <class T>
    static void set(belay_op_attribute& raw, const std::vector<T>& values, uint32_t kind) {
      raw.kind = kind, raw.values = values.data(), raw.count = values.size();
    }
    void list(const std::vector<Tensor>& from, std::vector<const belay_tensor*>& to) {
      for (const Tensor& tensor : from)
        to.push_back(tensor.dtype() == BELAY_DT_UNDEFINED ? nullptr
                                                          : &raw_tensors.emplace_back(tensor.raw()));
    }

    belay_op_req req{};
    std::deque<belay_op_attribute> raw_attributes;  // whose elements stay where they are
    std::deque<belay_tensor> raw_tensors;
    std::deque<std::vector<belay_str>> strings;
    std::vector<const belay_op_attribute*> attributes;
    std::vector<const belay_tensor*> inputs, outputs;
  };

  std::string op_, domain_;
  uint64_t version_ = 0, constants_ = 0;
  std::vector<Attribute> attributes_;
};

}  // namespace belay
