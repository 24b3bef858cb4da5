"""A client of NVFlare in the shape of its hello-numpy: a mean that every site moves by its own number."""

import argparse

import nvflare.client as flare


def train(values, step):
    return {name: value + step for name, value in values.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--step", type=float, default=1.0)
    args = parser.parse_args()

    flare.init()
    print("site", flare.get_site_name(), "of job", flare.system_info()["job_id"])
    while flare.is_running():
        received = flare.receive()
        metrics = {"weight_mean": float(received.params["w"].mean())}
        if flare.is_train():
            trained = train(received.params, args.step)
            flare.send(flare.FLModel(params=trained, params_type="FULL", metrics=metrics, meta={"NUM_STEPS_CURRENT_ROUND": 2}))
        elif flare.is_evaluate():
            print("evaluates the model of round", received.current_round)
            flare.send(flare.FLModel(metrics=metrics))


if __name__ == "__main__":
    main()
