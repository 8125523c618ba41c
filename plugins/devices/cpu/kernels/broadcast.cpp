#include "broadcast.hpp"

#include "trouble.hpp"

namespace belay::cpu {
namespace {

struct BroadcastKernel {
  BinaryForm form;
  std::string name;
  Dims dims;
  Walk walk;
  BlockReader a, b;
  int64_t a_bytes, b_bytes, y_bytes;
  bool direct;      // runs of the walk go to the loop as they are
  bool narrow_out;  // the output is a 16-bit float

  belay_status operator()(const Run& run) const {
    const int64_t total = product(dims);
    Trouble trouble;
    const char* pa = run.in<char>(0);
    const char* pb = run.in<char>(1);
    char* py = run.out<char>(0);
    run.parallel(total, grain_of(form.ns), [&](int64_t begin, int64_t end) {
      if (direct)
        in_runs(pa, pb, py, begin, end, trouble);
      else
        in_blocks(pa, pb, py, begin, end, trouble);
    });
    if (trouble)
      return run.fail(Code::kInvalidArgument, name + ": element " + std::to_string(trouble.first()) +
                                                  " of the result, of shape " + text_of(dims) + ", " +
                                                  std::string(form.trouble) + ".");
    return BELAY_OK;
  }

  void in_runs(const char* pa, const char* pb, char* py, int64_t begin, int64_t end, Trouble& trouble) const {
    if (walk.rank() == 0) {
      if (form.loop(pa, 0, pb, 0, py, 1) != 1) trouble.note(0);
      return;
    }
    const int64_t inner = walk.dims.back(), sa = walk.strides[0].back(), sb = walk.strides[1].back();
    int64_t skip = begin % inner, at = begin;
    for_runs<2>(walk, 1, begin / inner, (end - 1) / inner + 1, [&](int64_t, const int64_t* offset) {
      const int64_t n = std::min(inner - skip, end - at);
      const int64_t done = form.loop(pa + (offset[0] + skip * sa) * a_bytes, sa,
                                     pb + (offset[1] + skip * sb) * b_bytes, sb, py + at * y_bytes, n);
      if (done != n) trouble.note(at + done);
      at += n;
      skip = 0;
    });
  }

  void in_blocks(const char* pa, const char* pb, char* py, int64_t begin, int64_t end,
                 Trouble& trouble) const {
    for_blocks(begin, end, [&](int64_t at, int64_t n) {
      BlockBuffer left, right;
      alignas(64) float wide[kBlock];
      const void* x = a.read(pa, at, n, left);
      const void* y = b.read(pb, at, n, right);
      const int64_t done =
          form.loop(x, 1, y, 1, narrow_out ? static_cast<void*>(wide) : py + at * y_bytes, n);
      if (narrow_out) narrow(form.out_dtype, wide, py + at * y_bytes, n);
      if (done != n) trouble.note(at + done);
    });
  }
};

}  // namespace

Status prepare_broadcast(OpContext& op, const BinaryForm& form) {
  const Dims* shapes[] = {&op.dims(0), &op.dims(1)};
  const auto out = broadcast(shapes);
  if (!out)
    return op.bad("shapes " + text_of(op.dims(0)) + " and " + text_of(op.dims(1)) + " do not broadcast");
  BELAY_TRY(op.output(0, form.out_dtype, *out));
  BroadcastKernel kernel{
      form,
      std::string(op.op()),
      *out,
      Walk(*out, {broadcast_strides(op.dims(0), *out), broadcast_strides(op.dims(1), *out)}),
      BlockReader(op.dtype(0), op.dims(0), *out),
      BlockReader(op.dtype(1), op.dims(1), *out),
      element_bytes(op.dtype(0)),
      element_bytes(op.dtype(1)),
      element_bytes(form.out_dtype),
      false,
      is_16bit_float(form.out_dtype)};
  const bool wide = !is_16bit_float(op.dtype(0)) && !is_16bit_float(op.dtype(1));
  // Runs shorter than this cost more to start than to gather into blocks.
  kernel.direct = wide && (kernel.walk.rank() <= 1 || kernel.walk.dims.back() >= 16);
  op.kernel(std::move(kernel), op.dtype(0) == BELAY_DT_FLOAT64 ? "loops" : simd().name);
  return {};
}

}  // namespace belay::cpu
