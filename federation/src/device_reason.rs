//! Why a device did a part of the work on a round's sum.

task_spec::named_enum! {
    /// Why a device did a part of the work on a sum, the additions or the unmasking.
    #[derive(PartialOrd, Ord)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum DeviceReason: "reason for a device" {
        /// It was asked for by name, and was there.
        AskedFor = "asked_for",
        /// The choice was left to the program, and of the GPUs that were there this is the first that passed its self-test, the kinds that
        /// are usually fastest before the others.
        BestPresent = "best_present",
        /// The choice was left to the program, and there was no GPU that passed: the processor.
        NoGpu = "no_gpu",
        /// The processor, although a GPU is chosen: to add inputs as they arrive, and to reduce a sum without masks, takes less time
        /// than the way to a GPU and back.
        TransferCostsMore = "transfer_costs_more",
        /// The processor, because the chosen GPU failed during the work.
        ChosenFailed = "chosen_failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_stable_names() {
        let names = ["asked_for", "best_present", "no_gpu", "transfer_costs_more", "chosen_failed"];
        assert_eq!(DeviceReason::ALL.map(DeviceReason::as_str), names);
        for reason in DeviceReason::ALL {
            assert_eq!(reason.to_string().parse::<DeviceReason>().unwrap(), reason);
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
    }
}
