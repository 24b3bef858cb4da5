//! Functions, products and walks over elements that operations are made of.

pub(super) mod elements;
pub(super) mod math;
pub(super) mod packing;
pub(super) mod product;
pub(super) mod transpose;
pub(super) mod walk;
