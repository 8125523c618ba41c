#include "failure.hpp"

#include "text.hpp"

#include <belay/runtime.hpp>
#include <belay/tensor_io.hpp>

namespace belay::cli {
namespace {

belay_code_info describe(Code code) {
  belay_code_info info{};
  info.hdr.struct_size = sizeof info;
  belay_status_release(belay_code_describe(uint32_t(code), &info));
  return info;
}

// The catalogue's remedies speak of configurations, plugins and devices. What is wrong with a model, an input
// or a file the message itself says, with what is wanted.
std::string remedy_of(Code code, Stage stage) {
  if (stage == Stage::kModel) switch (code) {
      case Code::kInvalidArgument:
      case Code::kOutOfRange:
      case Code::kNotFound:
      case Code::kPermissionDenied:
      case Code::kFailedPrecondition:
      case Code::kUnimplemented:
        return "";
      default:
        break;
    }
  return to_string(describe(code).remedy);
}

}  // namespace

Exit exit_of(Code code, Stage stage) {
  switch (code) {
    case Code::kOk:
      return Exit::kOk;
    case Code::kResourceExhausted:
    case Code::kNeedSegment:
      return Exit::kResource;
    case Code::kDeadlineExceeded:
      return Exit::kTimeout;
    case Code::kDeviceLost:
    case Code::kUnavailable:
    case Code::kQueueFull:
      return Exit::kDevice;
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
      return stage == Stage::kConfigure ? Exit::kUsage
             : stage == Stage::kDevice  ? Exit::kDevice
                                        : Exit::kInput;
    case Code::kNotFound:
    case Code::kAlreadyExists:
    case Code::kPermissionDenied:
    case Code::kFailedPrecondition:
    case Code::kUnimplemented:
    case Code::kDataLoss:
    case Code::kUnauthenticated:
      return stage == Stage::kModel ? Exit::kInput : Exit::kDevice;
    default:
      return Exit::kInternal;
  }
}

std::string code_name(Code code) {
  const std::string name = to_string(describe(code).name);
  return name.empty() ? "CODE_" + std::to_string(int(code)) : name;
}

void fail(Stage stage, const Status& status, std::string hint) {
  if (hint.empty()) hint = remedy_of(status.code(), stage);
  throw Failure{exit_of(status.code(), stage), code_name(status.code()), status.message(), std::move(hint)};
}

void fail_usage(std::string message, std::string hint) {
  throw Failure{Exit::kUsage, "USAGE", std::move(message), std::move(hint)};
}

void fail_input(std::string message, std::string hint) {
  throw Failure{Exit::kInput, "INVALID_ARGUMENT", std::move(message), std::move(hint)};
}

void write_result(const std::string& path, std::string_view text, const char* what) {
  const Status written = write_file(path, text);
  if (!written.ok()) fail_input("Cannot write the " + std::string(what) + ": " + written.message());
}

void need_other_file(const std::string& input, const std::string& result, const char* option) {
  std::error_code none;
  if (!result.empty() && std::filesystem::equivalent(input, result, none))
    fail_usage(std::string(option) + " is '" + printable(result) + "', which is the file that is read.",
               "Name another file for the result.");
}

std::filesystem::file_status look_at(const std::string& path, Exit exit) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() != std::filesystem::file_type::none) return status;
  throw Failure{exit, error == std::errc::permission_denied ? "PERMISSION_DENIED" : "INVALID_ARGUMENT",
                "Cannot open '" + path + "': " + error.message() + ".", ""};
}

void need_folder(const std::string& path) {
  const std::filesystem::file_status there = look_at(path);
  if (std::filesystem::is_directory(there)) return;
  if (std::filesystem::exists(there)) fail_input("'" + path + "' is no folder.");
  throw Failure{Exit::kInput, "NOT_FOUND", "There is no folder '" + path + "'.", did_you_mean_file(path)};
}

void check(belay_status raw, Stage stage) {
  if (raw != BELAY_OK) fail(stage, take(raw));
}

}  // namespace belay::cli
