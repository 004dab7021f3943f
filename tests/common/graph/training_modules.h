// Small training steps in HLO, one per trait that has to be told apart, without metadata and with anonymous names.
#pragma once

#include <string>

namespace automap::graph {

// Two dense layers (tanh between), mean squared error, plain gradient descent. The loss is result 4.
// `update` is appended to the entry and must define the results; w1 [4,8], b1 [8], w2 [8,2], b2 [2], x [16,4], y
// [16,2]; gradients gw1, gb1, gw2, gb2; loss: loss. `more` are further parameters (from number 6 on).
inline std::string two_layers(const std::string& more, const std::string& update) {
  return R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  w1 = f32[4,8] parameter(0)
  b1 = f32[8] parameter(1)
  w2 = f32[8,2] parameter(2)
  b2 = f32[2] parameter(3)
  x = f32[16,4] parameter(4)
  y = f32[16,2] parameter(5)
)" + more +
         R"(
  zero = f32[] constant(0)
  one = f32[] constant(1)
  scale = f32[] constant(0.0625)
  scales = f32[16,2] broadcast(scale), dimensions={}
  ones = f32[16,8] broadcast(one), dimensions={}
  h0 = f32[16,8] dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b1b = f32[16,8] broadcast(b1), dimensions={1}
  h1 = f32[16,8] add(h0, b1b)
  h = f32[16,8] tanh(h1)
  o0 = f32[16,2] dot(h, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b2b = f32[16,2] broadcast(b2), dimensions={1}
  o = f32[16,2] add(o0, b2b)
  e = f32[16,2] subtract(o, y)
  e2 = f32[16,2] multiply(e, e)
  total = f32[] reduce(e2, zero), dimensions={0,1}, to_apply=sum
  loss = f32[] multiply(total, scale)
  de = f32[16,2] multiply(e, scales)
  gb2 = f32[2] reduce(de, zero), dimensions={0}, to_apply=sum
  gw2 = f32[8,2] dot(h, de), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dh = f32[16,8] dot(de, w2), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  hh = f32[16,8] multiply(h, h)
  slope = f32[16,8] subtract(ones, hh)
  dh1 = f32[16,8] multiply(dh, slope)
  gb1 = f32[8] reduce(dh1, zero), dimensions={0}, to_apply=sum
  gw1 = f32[4,8] dot(x, dh1), lhs_contracting_dims={0}, rhs_contracting_dims={0}
)" + update +
         "\n}\n";
}

inline std::string plain_descent(const std::string& result) {
  return two_layers("", R"(
  nw1 = f32[4,8] subtract(w1, gw1)
  nb1 = f32[8] subtract(b1, gb1)
  nw2 = f32[8,2] subtract(w2, gw2)
  nb2 = f32[2] subtract(b2, gb2)
  )" + result);
}

}  // namespace automap::graph
