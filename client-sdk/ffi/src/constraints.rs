//! The purpose of a job, and the constraints on its training beyond the plan.

use client_sdk::learning::Parameters;

use crate::job::Job;
use crate::tensors::{Tensor, tensors};

/// Purpose of a job. The jobs of one round may differ in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Enum))]
pub enum Purpose {
    /// The shared model: the one that was received, or shared adapters; where tensors stay on the device, with these in
    /// it. The update is made of it. The app's metrics of the model that the job begins with count as those of the
    /// received one.
    Shared,
    /// The device's own model, or its own part of one. The app's metrics of the model that the job begins with are
    /// ignored.
    Own,
}

/// The frozen model whose adapters a job trains: a layer of it computes with its matrix NAME + `scale` · B · A, where A and B are the
/// job's tensors `NAME.lora_a` and `NAME.lora_b`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct AdapterBase {
    /// 32-bit floats, little-endian, tensor after tensor.
    pub parameters: Vec<u8>,
    /// In the order of the parameters.
    pub tensors: Vec<Tensor>,
    /// The factor of B · A.
    pub scale: f32,
}

fn bytes(parameters: &Parameters) -> Vec<u8> {
    parameters.values().iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[cfg_attr(feature = "uniffi", uniffi::export)]
impl Job {
    /// Its purpose.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        match self.training().purpose {
            client_sdk::Purpose::Shared => Purpose::Shared,
            client_sdk::Purpose::Own => Purpose::Own,
        }
    }

    /// The anchor of `proximal_mu` of the plan, in the form of `parameters`; null if that is the model that the job
    /// begins with. Only for an app with `trains_within` in its options.
    #[must_use]
    pub fn anchor(&self) -> Option<Vec<u8>> {
        self.constraints().anchor().map(bytes)
    }

    /// Names of the tensors that must stay as they are. Only for an app whose options say `trains_within`.
    #[must_use]
    pub fn frozen(&self) -> Vec<String> {
        let tensors = self.layout().tensors().iter().enumerate();
        let frozen = tensors.filter(|(number, _)| self.constraints().is_frozen(*number));
        frozen.map(|(_, tensor)| tensor.name.clone()).collect()
    }

    /// The addition to the gradient of every step, in the form of `parameters`, if any. Only for an app with
    /// `trains_within` in its options.
    #[must_use]
    pub fn correction(&self) -> Option<Vec<u8>> {
        self.constraints().correction().map(bytes)
    }

    /// The frozen model, if the parameters to train are its adapters. Only for an app whose options say `trains_adapters`.
    #[must_use]
    pub fn base(&self) -> Option<AdapterBase> {
        let (base, adapters) = self.constraints().base()?;
        Some(AdapterBase { parameters: bytes(base), tensors: tensors(base.layout()), scale: adapters.scale() })
    }
}
