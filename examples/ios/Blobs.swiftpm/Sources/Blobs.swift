import Foundation

/// Softmax regression on a device's own examples, like `examples/c/train.c`: three classes, eight features.
struct Blobs {
    private static let classes = 3, features = 8
    private var labels: [Int] = []
    private var examples: [[Float]] = []
    var count: Int { labels.count }

    init(seed: UInt64, count: Int = 200) {
        var state = seed &* 2 &+ 1
        func uniform() -> Float {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Float(state >> 40) / Float(1 << 24)
        }
        for _ in 0..<count {
            let label = Int(uniform() * Float(Self.classes))
            labels.append(label)
            examples.append((0..<Self.features).map { feature in
                uniform() + uniform() + uniform() - 1.5 + (feature % Self.classes == label ? 0.8 : 0)
            })
        }
    }

    /// The fraction of its examples that the model gets right.
    func accuracy(_ parameters: [Float]) -> Double {
        let right = zip(examples, labels).filter { example, label in
            let all = probabilities(parameters, example)
            return all.firstIndex(of: all.max()!) == label
        }
        return Double(right.count) / Double(count)
    }

    /// One pass over the data: a step of gradient descent after each `batchSize` examples.
    func trainEpoch(_ parameters: inout [Float], batchSize: Int, learningRate: Double) {
        for begin in stride(from: 0, to: count, by: min(batchSize, count)) {
            descend(&parameters, begin..<min(begin + batchSize, count), learningRate)
        }
    }

    /// A step by the mean gradient of the examples in `batch`.
    private func descend(_ parameters: inout [Float], _ batch: Range<Int>, _ learningRate: Double) {
        var gradient = [Double](repeating: 0, count: parameters.count)
        for example in batch {
            let all = probabilities(parameters, examples[example])
            for kind in 0..<Self.classes {
                let error = all[kind] - (kind == labels[example] ? 1 : 0)
                for feature in 0..<Self.features {
                    gradient[kind * Self.features + feature] += error * Double(examples[example][feature])
                }
                gradient[Self.classes * Self.features + kind] += error
            }
        }
        let rate = learningRate / Double(batch.count)
        for index in parameters.indices {
            parameters[index] -= Float(rate * gradient[index])
        }
    }

    private func probabilities(_ parameters: [Float], _ example: [Float]) -> [Double] {
        let scores = (0..<Self.classes).map { kind -> Double in
            let sum = (0..<Self.features).reduce(Float(0)) { $0 + parameters[kind * Self.features + $1] * example[$1] }
            return Double(sum + parameters[Self.classes * Self.features + kind])
        }
        let highest = scores.max()!
        let all = scores.map { exp($0 - highest) }
        let total = all.reduce(0, +)
        return all.map { $0 / total }
    }
}
