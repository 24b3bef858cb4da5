//! Functions for the purpose of a job, and the constraints on its training beyond the plan.
//!
//! This file is free of `unsafe` blocks. Exporting a name counts as unsafe, since another library might have the same
//! name.
#![expect(unsafe_code, reason = "`no_mangle`: all names begin with tributary_")]

use client_sdk::learning::Parameters;

use super::arguments::{can_give, give};
use super::code::TributaryCode;
use super::job::{TributaryJob, if_so, with};
use super::tensors::{TributaryTensor, give_tensor};
use crate::constraints::Purpose;
use crate::error::TributaryError;

/// Purpose of a job. The jobs of one round may differ in it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TributaryPurpose {
    /// The shared model: the one that was received, or shared adapters; where tensors stay on the device, with these in
    /// it. The update is made of it. The app's metrics of the model that the job begins with count as those of the
    /// received one.
    Shared = 0,
    /// The device's own model, or its own part of one. The app's metrics of the model that the job begins with are
    /// ignored.
    Own = 1,
}

/// Puts the purpose of the job into `purpose`.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_purpose(job: TributaryJob, purpose: *mut TributaryPurpose) -> TributaryCode {
    with(job, |handed_out| {
        let found = match handed_out.job.purpose() {
            Purpose::Shared => TributaryPurpose::Shared,
            Purpose::Own => TributaryPurpose::Own,
        };
        give(found, purpose, "purpose")?;
        Ok(TributaryCode::Ok)
    })
}

/// Points `values` to the model, `count` floats, that `proximal_mu` of the plan pulls towards; NOTHING if that is the
/// one that the job begins with. They belong to the job, and are only to be read. Only for an app with `trains_within`
/// in its options.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_anchor(job: TributaryJob, values: *mut *const f32, count: *mut usize) -> TributaryCode {
    with(job, |handed_out| give_parameters(handed_out.job.constraints().anchor(), values, count))
}

/// OK if the tensor of this number, from 0, must stay as it is; NOTHING if it is to be trained, or does not exist. Only
/// an app with `trains_within` in its options gets a job with such a tensor.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_is_frozen(job: TributaryJob, number: usize) -> TributaryCode {
    with(job, |handed_out| Ok(if_so(handed_out.job.constraints().is_frozen(number))))
}

/// Points `values` to the addition to the gradient of every step, `count` floats in the order of the parameters;
/// NOTHING without an addition. They belong to the job, and are only to be read. Only for an app with `trains_within`
/// in its options.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_correction(
    job: TributaryJob,
    values: *mut *const f32,
    count: *mut usize,
) -> TributaryCode {
    with(job, |handed_out| give_parameters(handed_out.job.constraints().correction(), values, count))
}

/// Points `values` to the frozen model, `count` floats, whose adapters the parameters of the job are; NOTHING if they
/// are a model themselves. A layer computes with its matrix NAME + `scale` * B * A, where A and B are the job's tensors
/// `NAME.lora_a` and `NAME.lora_b`. They belong to the job, and are only to be read. Only for an app with
/// `trains_adapters` in its options.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_base(
    job: TributaryJob,
    values: *mut *const f32,
    count: *mut usize,
    scale: *mut f32,
) -> TributaryCode {
    with(job, |handed_out| {
        can_give(scale, "scale")?;
        let found = handed_out.job.constraints().base();
        let code = give_parameters(found.map(|(base, _)| base), values, count)?;
        if let Some((_, adapters)) = found {
            give(adapters.scale(), scale, "scale")?;
        }
        Ok(code)
    })
}

/// Puts the tensor of the frozen model of this number, from 0, into `tensor`; NOTHING beyond the last, and without such a model.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_base_tensor(
    job: TributaryJob,
    number: usize,
    tensor: *mut TributaryTensor,
) -> TributaryCode {
    with(job, |handed_out| give_tensor(&handed_out.base_tensors, number, tensor))
}

/// Points to parameters of the job, if there are any.
fn give_parameters(
    found: Option<&Parameters>,
    values: *mut *const f32,
    count: *mut usize,
) -> Result<TributaryCode, TributaryError> {
    can_give(values, "values")?;
    can_give(count, "count")?;
    let Some(found) = found.map(Parameters::values) else { return Ok(TributaryCode::Nothing) };
    give(found.as_ptr(), values, "values")?;
    give(found.len(), count, "count")?;
    Ok(TributaryCode::Ok)
}
