//! Buffers of one training run: allocated once, reused at every step.
//!
//! If the allocator returns the pages of large buffers, allocating them at each step costs more than the arithmetic;
//! and a library must not choose its host's allocator.

use std::ops::{Deref, DerefMut};

/// `f32`s, initially zero, aligned to a cache line: a vector that straddles two lines costs twice.
pub(in crate::train) struct Buffer {
    memory: Vec<f32>,
    start: usize,
    length: usize,
}

/// Number of `f32`s in a cache line of 64 bytes.
const LINE: usize = 16;

impl Buffer {
    pub(in crate::train) fn zeros(length: usize) -> Self {
        let memory = vec![0.0; length + LINE];
        let start = memory.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        Self { memory, start, length }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..self.start + self.length]
    }
}
