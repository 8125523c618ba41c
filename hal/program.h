// hal/program.h: recorded work, launched as one operation.
#pragma once

#include <belay/abi/driver.h>
#include <belay/status.hpp>
#include "hal/buffer.h"
#include "hal/slots.h"

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace belay::hal {

class Device;
class Stream;

// Steps that are queued one by one: a program on a driver that has none. Immutable once it is made; the
// kernels and buffers it names are its maker's to keep alive.
class Recording {
 public:
  struct Node {  // arguments are resolved at the launch
    const belay_kernel* kernel;
    std::vector<belay_arg> args;
    std::vector<std::vector<uint64_t>> bytes;  // of BYTES arguments, in their order
    std::string name;
  };
  struct Launch {
    belay_launch_req req;  // without argument words and accesses
    std::vector<uint64_t> args;
  };
  struct Call {
    void (*fn)(void*);
    void* user;
  };
  using Step = std::variant<Node, Launch, Call, belay_copy_req, belay_fill_req>;

  // Of a checked request.
  static std::unique_ptr<Recording> of(const belay_program_req& req);
  template <class What>
  void add(What&& step) {
    steps_.emplace_back(std::in_place_type<std::decay_t<What>>, std::forward<What>(step));
  }
  void append(const Recording& other) {
    steps_.insert(steps_.end(), other.steps_.begin(), other.steps_.end());
  }

  // Bindings are checked: in range of their buffers. Once the first step is queued a full queue blocks.
  belay_status play(Stream& stream, const belay_binding* bindings, uint64_t count, belay_event* out) const;
  // OUT_OF_RANGE: a binding does not cover what an argument uses.
  Status check(const belay_binding* bindings, uint64_t count) const;

 private:
  belay_status play(Stream& stream, const Node& node, const belay_binding* bindings, bool begun,
                    belay_event* out) const;
  std::vector<Step> steps_;
};

// Each binding is memory of the device, inside its buffer. INVALID_ARGUMENT, OUT_OF_RANGE, NOT_FOUND name the
// binding; `call` is a word for the message.
Status check_bindings(Device& device, const char* call, const belay_binding* bindings, uint64_t count);

class Program : public Object {
 public:
  static constexpr uint32_t kKind = BELAY_OBJ_PROGRAM;

  // Of the driver: table and impl are those of its program extension. `binding_count`: what a launch has to
  // give.
  Program(Device& device, uint64_t binding_count) : device_(device), binding_count_(binding_count) {}
  Program(Device& device, uint64_t binding_count, std::unique_ptr<Recording> recording)
      : device_(device), binding_count_(binding_count), recording_(std::move(recording)) {}

  Device& device() const { return device_; }
  const Recording* recording() const { return recording_.get(); }
  // What a captured program uses of reserved buffers: each launch needs memory there. Before the first launch.
  void set_uses(std::vector<ReservedPart> uses) { uses_ = std::move(uses); }
  belay_status launch(Stream& stream, const belay_binding* bindings, uint64_t count, belay_event* out);

  // INVALID_ARGUMENT names the node, the argument and what is wrong.
  static Status check(const belay_program_req& req);

 private:
  Status check_launch(const belay_binding* bindings, uint64_t count) const;

  Device& device_;
  const uint64_t binding_count_;
  const std::unique_ptr<Recording> recording_;  // null: the driver has the program
  std::vector<ReservedPart> uses_;
};

}  // namespace belay::hal
