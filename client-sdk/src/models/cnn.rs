//! The convolutional network of McMahan et al. 2017 (section 3): two 5x5 convolutions (32 and 64 channels, the image's
//! size kept), each with ReLU and 2x2 max-pooling, then 512 units with ReLU, then the classes. For 28x28 images in one
//! channel and ten classes that is 1,663,370 parameters.

use learning::Layout;
use serde::{Deserialize, Serialize};
use task_spec::TensorDeclaration;

use super::layers::{
    ArchitectureError, InputKind, MAX_SIZE, ModelDefaults, check, check_from, patterns, rows, shape, uniform,
};

/// Channels of the first convolution.
pub(crate) const FIRST_CHANNELS: u32 = 32;
/// Channels of the second convolution.
pub(crate) const SECOND_CHANNELS: u32 = 64;
/// Units of the fully connected layer.
pub(crate) const HIDDEN: u32 = 512;
/// Side of both kernels.
pub(crate) const KERNEL: u32 = 5;
/// Maximum height and width of an image.
pub const MAX_SIDE: u32 = 256;
/// Maximum number of channels of an image.
pub const MAX_CHANNELS: u32 = 16;

/// Sizes of the images and number of classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cnn {
    /// Height in pixels, 4 to [`MAX_SIDE`].
    pub height: u32,
    /// Width in pixels, 4 to [`MAX_SIDE`].
    pub width: u32,
    /// Colour channels, 1 to [`MAX_CHANNELS`]. An example is in the order channel, row, column, as in PyTorch.
    pub channels: u32,
    /// Number of classes, 1 to [`MAX_SIZE`].
    pub classes: u32,
}

impl Default for Cnn {
    fn default() -> Self {
        Self { height: 28, width: 28, channels: 1, classes: 10 }
    }
}

impl Cnn {
    /// Length of an example.
    pub(crate) fn inputs(&self) -> usize {
        self.height as usize * self.width as usize * self.channels as usize
    }

    /// Number of inputs of the fully connected layer. Sizes must have been checked.
    pub(crate) fn features(&self) -> u32 {
        (self.height / 4) * (self.width / 4) * SECOND_CHANNELS
    }

    pub(super) fn fitting(input: InputKind, classes: u32) -> Result<Self, ArchitectureError> {
        let inputs = rows("cnn", input)?;
        let side = inputs.isqrt();
        if side * side != inputs {
            let why = "takes square images, and these examples are none";
            return Err(ArchitectureError::Misfit { kind: "cnn", why });
        }
        Ok(Self { height: side, width: side, channels: 1, classes })
    }

    /// The model of square images that may have tensors of these request_ids and shapes. Two poolings halve the side twice; which of
    /// four sides it was cannot be derived from the tensors, and the images of the usual data sets are the smallest.
    pub(super) fn of_tensors(layout: &Layout) -> Option<Self> {
        let [_, channels, _, _] = shape(layout, "conv1.weight")?[..] else { return None };
        let [classes, _] = shape(layout, "fc2.weight")?[..] else { return None };
        let [_, features] = shape(layout, "fc1.weight")?[..] else { return None };
        let side = 4 * (features / SECOND_CHANNELS).isqrt();
        Some(Self { height: side, width: side, channels, classes })
    }

    pub(super) fn defaults() -> ModelDefaults {
        ModelDefaults {
            epochs: 2,
            batch_size: 10,
            learning_rate: 0.05,
            last_layer: "fc2.*".to_owned(),
            linear_layers: patterns(&["fc*.weight"]),
        }
    }

    pub(super) fn tensors(&self) -> Result<Vec<TensorDeclaration>, ArchitectureError> {
        check_from("cnn", "height", self.height, 4, MAX_SIDE)?;
        check_from("cnn", "width", self.width, 4, MAX_SIDE)?;
        check("cnn", "channels", self.channels, MAX_CHANNELS)?;
        check("cnn", "classes", self.classes, MAX_SIZE)?;
        let area = KERNEL * KERNEL;
        let (first, second) = (area * self.channels, area * FIRST_CHANNELS);
        let features = self.features();
        Ok(vec![
            uniform("conv1.weight", &[FIRST_CHANNELS, self.channels, KERNEL, KERNEL], first),
            uniform("conv1.bias", &[FIRST_CHANNELS], first),
            uniform("conv2.weight", &[SECOND_CHANNELS, FIRST_CHANNELS, KERNEL, KERNEL], second),
            uniform("conv2.bias", &[SECOND_CHANNELS], second),
            uniform("fc1.weight", &[HIDDEN, features], features),
            uniform("fc1.bias", &[HIDDEN], features),
            uniform("fc2.weight", &[self.classes, HIDDEN], HIDDEN),
            uniform("fc2.bias", &[self.classes], HIDDEN),
        ])
    }
}
