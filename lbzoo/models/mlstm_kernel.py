"""Two ways to run the mLSTM over time: the plain loop, which is the definition, and a fast one with its own gradient.

Both take the input as two tables of projections, one row a token (`tx = E Wx + b`, `tm = E Wmx`): a byte has only 256
of them, so the input costs a gather and no matrix product. Shapes are time-major here:

    ids [time, batch] int32; tx [vocab, 4n], tm [vocab, n]; wh [n, 4n], wmh [n, n]; c, h [batch, n] float32;
    mask, keep [time, batch, 1] float32 (1 or 0) or None. keep = 0 zeroes the state before the step;
    mask = 0 carries it through the step unchanged.

Matrix products run in the dtype of `wh`; the state and the arithmetic of the gates are float32.
"""

from __future__ import annotations

from typing import Optional, Tuple

import tensorflow as tf

State = Tuple[tf.Tensor, tf.Tensor]


def mlstm_step(zx: tf.Tensor, mx: tf.Tensor, wh: tf.Tensor, wmh: tf.Tensor, c: tf.Tensor, h: tf.Tensor) -> State:
    """One step (Radford et al. 2017; gate order i f o u): zx [batch, 4n] = x Wx + b, mx [batch, n] = x Wmx."""
    m = mx * tf.matmul(tf.cast(h, wmh.dtype), wmh)
    z = zx + tf.matmul(m, wh)
    i, f, o, u = tf.split(tf.cast(z, tf.float32), 4, axis=-1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(u)
    h = tf.sigmoid(o) * tf.tanh(c)
    return c, h


def plain_scan(
    ids: tf.Tensor,
    tx: tf.Tensor,
    tm: tf.Tensor,
    wh: tf.Tensor,
    wmh: tf.Tensor,
    c: tf.Tensor,
    h: tf.Tensor,
    mask: Optional[tf.Tensor] = None,
    keep: Optional[tf.Tensor] = None,
    collect: Optional[str] = "hidden",
) -> Tuple[Optional[tf.Tensor], tf.Tensor, tf.Tensor]:
    """Step by step, differentiated by TensorFlow: the reference, and the loop that inference runs.

    Args:
        collect: which state to return of every step: "hidden", "cell" or None.

    Returns:
        (collected float32 [time, batch, n] or None, c, h).
    """
    steps = tf.shape(ids)[0]
    tx, tm = tf.cast(tx, wh.dtype), tf.cast(tm, wh.dtype)
    kept = tf.TensorArray(tf.float32, size=steps if collect else 0, element_shape=c.shape)

    def body(t, c, h, kept):
        if keep is not None:
            c, h = c * keep[t], h * keep[t]
        c_next, h_next = mlstm_step(tf.gather(tx, ids[t]), tf.gather(tm, ids[t]), wh, wmh, c, h)
        if mask is not None:
            c_next, h_next = tf.where(mask[t] > 0, c_next, c), tf.where(mask[t] > 0, h_next, h)
        if collect:
            kept = kept.write(t, c_next if collect == "cell" else h_next)
        return t + 1, c_next, h_next, kept

    _, c, h, kept = tf.while_loop(lambda t, *_: t < steps, body, (0, c, h, kept), maximum_iterations=steps)
    return (kept.stack() if collect else None), c, h


@tf.function(jit_compile=True)
def _step(z, zx, c, h, mask):
    """The arithmetic of one step as one compiled kernel: z = m Wh and zx in the compute dtype, the rest float32.

    Returns ((i, f, o, u) activated, next h for the next product, all in z's dtype; next c, next h). The gates stay
    apart: a concatenation keeps the compiler from using vectors.
    """
    i, f, o, u = tf.split(tf.cast(z + zx, tf.float32), 4, axis=-1)
    i, f, o, u = tf.sigmoid(i), tf.sigmoid(f), tf.sigmoid(o), tf.tanh(u)
    c_next = f * c + i * u
    h_next = o * tf.tanh(c_next)
    if mask is not None:
        c_next, h_next = tf.where(mask > 0, c_next, c), tf.where(mask > 0, h_next, h)
    return [tf.cast(gate, z.dtype) for gate in (i, f, o, u)], tf.cast(h_next, z.dtype), c_next, h_next


@tf.function(jit_compile=True)
def _step_gradient(gates, c, dh_out, dh_by, dh, dc, mask, keep):
    """Gradient of `_step` at the incoming c: dh_out is that of the step's output; dh_by + dh and dc come from the next.

    Returns (dz of i, f, o, u in the gates' dtype, dc, and dh_by, the part of dh that passes by the step where it is
    masked), dc and dh_by as they are before the state is kept or zeroed.
    """
    i, f, o, u = (tf.cast(gate, tf.float32) for gate in gates)
    dh = dh_by + tf.cast(dh, tf.float32) + tf.cast(dh_out, tf.float32)
    step_dh, step_dc = (dh, dc) if mask is None else (dh * mask, dc * mask)
    tanh_c = tf.tanh(f * c + i * u)
    through = step_dc + step_dh * o * (1 - tanh_c * tanh_c)
    dz = [
        through * u * i * (1 - i),
        through * c * f * (1 - f),
        step_dh * tanh_c * o * (1 - o),
        through * i * (1 - u * u),
    ]
    dc, dh_by = through * f + (dc - step_dc), dh - step_dh
    if keep is not None:
        dc, dh_by = dc * keep, dh_by * keep
    return [tf.cast(part, gates[0].dtype) for part in dz], dc, dh_by


def _table_gradient(ids: tf.Tensor, rows: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Sum of gradient [time * batch, k] over equal ids -> float32 [rows, k]."""
    return tf.math.unsorted_segment_sum(tf.cast(gradient, tf.float32), tf.reshape(ids, [-1]), rows)


def fast_scan(
    ids: tf.Tensor,
    tx: tf.Tensor,
    tm: tf.Tensor,
    wh: tf.Tensor,
    wmh: tf.Tensor,
    c: tf.Tensor,
    h: tf.Tensor,
    mask: Optional[tf.Tensor] = None,
    keep: Optional[tf.Tensor] = None,
) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """`plain_scan` with a hand-written gradient, three to four times faster to train on a CPU.

    What makes it fast: the gradients of wh and wmh are large matrix products over all time steps, those of the tables
    sums over all of them, instead of a small product and an addition a step; the arithmetic of the gates is one
    compiled kernel a step.

    Returns:
        (hidden states [time, batch, n] in the dtype of `wh`, c, h).
    """
    compute = wh.dtype
    steps, vocab = tf.shape(ids)[0], tf.shape(tx)[0]
    shape = c.shape

    def array(dtype, element_shape=shape):
        return tf.TensorArray(dtype, size=steps, element_shape=element_shape, clear_after_read=False)

    def at(flags, t):
        return None if flags is None else flags[t]

    def flat(a):
        return tf.reshape(a, [-1, a.shape[-1]])

    @tf.custom_gradient
    def scan(tx, tm, wh, wmh, c0, h0):
        zx, mx = tf.cast(tx, compute), tf.cast(tm, compute)

        def forward(t, c, h, hs, cs, qs, ms, gs):
            if keep is not None:
                c, h = c * keep[t], h * keep[t]
            q = tf.matmul(tf.cast(h, compute), wmh)
            m = tf.gather(mx, ids[t]) * q
            cs, qs, ms = cs.write(t, c), qs.write(t, q), ms.write(t, m)
            gates, out, c, h = _step(tf.matmul(m, wh), tf.gather(zx, ids[t]), c, h, at(mask, t))
            return t + 1, c, h, hs.write(t, out), cs, qs, ms, [g.write(t, gate) for g, gate in zip(gs, gates)]

        arrays = array(compute), array(tf.float32), array(compute), array(compute), [array(compute) for _ in range(4)]
        loop = tf.while_loop(lambda t, *_: t < steps, forward, (0, c0, h0) + arrays, maximum_iterations=steps)
        _, c, h, hs, cs, qs, ms, gs = loop
        hs = hs.stack()

        def gradient(dhs, dc, dh):
            wh_t, wmh_t = tf.transpose(wh), tf.transpose(wmh)

            def backward(t, dc, dh_by, dh, dzs, dqs, dxs):
                gates, mask_t, keep_t = [g.read(t) for g in gs], at(mask, t), at(keep, t)
                dz, dc, dh_by = _step_gradient(gates, cs.read(t), dhs[t], dh_by, dh, dc, mask_t, keep_t)
                dz = tf.concat(dz, -1)
                dm = tf.matmul(dz, wh_t)
                dq = dm * tf.gather(mx, ids[t])
                if keep is not None:
                    dq = dq * tf.cast(keep_t, compute)
                dh = tf.matmul(dq, wmh_t)
                return t - 1, dc, dh_by, dh, dzs.write(t, dz), dqs.write(t, dq), dxs.write(t, dm * qs.read(t))

            wide = tf.TensorShape([shape[0], tx.shape[1]])
            start = (steps - 1, dc, dh, tf.zeros_like(dh, compute))
            start += array(compute, wide), array(compute), array(compute)
            loop = tf.while_loop(lambda t, *_: t >= 0, backward, start, maximum_iterations=steps)
            _, dc0, dh_by, dh, dz, dq, dx = loop[:4] + tuple(flat(a.stack()) for a in loop[4:])
            h_before = tf.concat([tf.cast(h0, compute)[None], hs[:-1]], 0)
            return (
                _table_gradient(ids, vocab, dz),
                _table_gradient(ids, vocab, dx),
                tf.matmul(flat(ms.stack()), dz, transpose_a=True),
                tf.matmul(flat(h_before), dq, transpose_a=True),  # dq is zero where the state was zeroed
                dc0,
                dh_by + tf.cast(dh, tf.float32),
            )

        return (hs, c, h), gradient

    return scan(tx, tm, wh, wmh, c, h)
