import Foundation

/// The rule of a step; its state begins anew in each round.
public enum Optimizer: Decodable, Sendable, Equatable {
    /// Stochastic gradient descent, with the plan's momentum and with its weight decay as a term of the gradient.
    case sgd
    /// AdamW (Loshchilov and Hutter 2019), with the plan's weight decay apart from the gradient.
    case adamW(beta1: Double, beta2: Double, epsilon: Double)
    /// Of a newer task than this package.
    case other(name: String)

    private enum CodingKeys: String, CodingKey {
        case name, beta1, beta2, epsilon
    }

    public init(from decoder: Decoder) throws {
        let said = try decoder.container(keyedBy: CodingKeys.self)
        switch try said.decode(String.self, forKey: .name) {
        case "sgd":
            self = .sgd
        case "adamw":
            self = .adamW(
                beta1: try said.decode(Double.self, forKey: .beta1),
                beta2: try said.decode(Double.self, forKey: .beta2),
                epsilon: try said.decode(Double.self, forKey: .epsilon))
        case let name:
            self = .other(name: name)
        }
    }
}

/// Decodes from any value, so that only its presence counts.
private struct Said: Decodable, Sendable {
    init(from _: Decoder) throws {}
}

/// How to train: the numbers that most training functions need. The job's `description()` has all of the plan. An app whose training cannot do
/// what they ask for refuses the job (`refuse`).
public struct Plan: Decodable, Sendable {
    /// Passes over the local data, unless `steps` says how many steps.
    public let epochs: Int
    /// Number of steps; nil if `epochs` counts.
    public let steps: Int?
    /// Examples in a mini-batch.
    public let batchSize: Int
    /// Of the local optimizer.
    public let learningRate: Double
    /// Of the local optimizer, from 0 to below 1.
    public let momentum: Double
    /// L2 penalty.
    public let weightDecay: Double
    /// FedProx μ: strength of the pull towards the received model; 0 if there is none.
    public let proximalMu: Double
    /// L2 norm to which the gradient of each step is clipped; nil if it is not.
    public let gradientClip: Double?
    /// Mini-batches whose gradients are averaged into one step; nil is one.
    public let accumulate: Int?
    private let givenOptimizer: Optimizer?

    /// The rule of a step.
    public var optimizer: Optimizer {
        givenOptimizer ?? .sgd
    }

    private let schedule: Said?
    private let warmup: Said?
    private let budget: Said?

    /// Whether it asks for steps of gradient descent at one learning rate, each after one mini-batch of `batchSize` examples, and nothing else. A
    /// budget, at which training ends early, is something else.
    public var isPlainSgd: Bool {
        optimizer == .sgd && momentum == 0 && weightDecay == 0 && proximalMu == 0 && gradientClip == nil && (accumulate ?? 1) == 1
            && schedule == nil && warmup == nil && budget == nil
    }

    enum CodingKeys: String, CodingKey {
        case epochs, steps, momentum, accumulate, schedule, warmup, budget
        case batchSize = "batch_size"
        case learningRate = "learning_rate"
        case weightDecay = "weight_decay"
        case proximalMu = "proximal_mu"
        case gradientClip = "gradient_clip"
        case givenOptimizer = "optimizer"
    }
}

/// What a job says of itself.
public struct Description: Decodable, Sendable {
    public let task: String
    /// From 1.
    public let round: Int
    /// For shuffling and the like.
    public let seed: UInt64
    public let plan: Plan
    public let metrics: [String]
}

extension AdapterBase {
    /// The frozen model, flat and row-major.
    public var values: [Float] {
        parameters.floats
    }
}

extension Column {
    /// An input of floats, for all examples: their elements one example after the other, each row-major.
    public init(_ name: String, floats: [Float]) {
        self.init(name: name, elements: .floats(bytes: floats.withUnsafeBytes { Data($0) }))
    }

    /// The same for an input of integers, such as ids from 0 on.
    public init(_ name: String, integers: [Int64]) {
        self.init(name: name, elements: .integers(bytes: integers.withUnsafeBytes { Data($0) }))
    }

    /// The same for an input of truth values, such as a mask.
    public init(_ name: String, truths: [Bool]) {
        self.init(name: name, elements: .truths(bytes: Data(truths.map { $0 ? 1 : 0 })))
    }
}

extension GraphTargets {
    /// For losses other than `cross_entropy` and `next_token`: a number for each output.
    public init(numbers: [Float]) {
        self = .numbers(bytes: numbers.withUnsafeBytes { Data($0) })
    }
}

extension Job {
    /// The task, the round and the plan.
    public func about() throws -> Description {
        try JSONDecoder().decode(Description.self, from: Data(description().utf8))
    }

    /// A copy of the parameters, flat and row-major, to be trained in place and given to `finish`.
    public func floats() throws -> [Float] {
        try parameters().floats
    }

    /// What `proximalMu` of the plan pulls towards, in the form of `floats`; nil if that is the model that the job begins with. Only for an
    /// app whose options say `trainsWithin`, as `frozen()` and `correctionFloats`.
    public func anchorFloats() -> [Float]? {
        anchor()?.floats
    }

    /// What must be added to the gradient of every step, in the form of `floats`, if anything.
    public func correctionFloats() -> [Float]? {
        correction()?.floats
    }

    /// Hands in the trained parameters. What leaves the device is clipped, weighted, noised and masked as the task prescribes.
    ///
    /// `metrics` that are not of the training itself (`train_…`) count as those of the received model: measure the model that the job
    /// begins with. A task that weighs updates by the loss takes `loss` from them. With `purpose()` `.own` they count for nothing, but for
    /// those of the device's own model (`personal_…`).
    ///
    /// Returns whether they were handed in. If not, the round no longer waited, or the job was taken back: go on with the next one. Throws
    /// `TributaryError.Update` if they do not fit: nothing was sent, and the job still takes an answer.
    @discardableResult
    public func finish(_ parameters: [Float], examples: Int, metrics: [String: Double] = [:]) throws -> Bool {
        let count = UInt64(max(examples, 0))
        let measured = metrics.map { Metric(name: $0.key, value: $0.value, count: count) }
        return try inTime {
            try finish(parameters: parameters.withUnsafeBytes { Data($0) }, examples: count, metrics: measured)
        }
    }

    /// Trains the task's ready model as the plan says, and as the job asks beside it, and hands in the result: for apps without a training
    /// function. `features` are rows of `width` numbers, `labels` the class of each row. Takes as long as training does. With `heldOut`,
    /// which nobody trains on, a job of the shared model also hands in what the model that it began with is worth, as `loss` and
    /// `accuracy`.
    ///
    /// Returns whether it was handed in. If not, the job was paused, and comes again, or the round no longer waits.
    @discardableResult
    public func train(
        features: [Float],
        labels: [UInt32],
        width: Int,
        heldOut: (features: [Float], labels: [UInt32])? = nil
    ) throws -> Bool {
        let rows = features.withUnsafeBytes { Data($0) }
        return try inTime {
            guard let heldOut else {
                return try train(features: rows, labels: labels, width: UInt64(width))
            }
            try trainAndMeasure(
                features: rows, labels: labels, width: UInt64(width),
                heldOut: heldOut.features.withUnsafeBytes { Data($0) }, heldOutLabels: heldOut.labels)
        }
    }

    /// As the other `train`, for a graph whose inputs have names. `accuracy` is left out if the model predicts numbers.
    ///
    /// Throws `TributaryError.Update` if the examples do not fit, or the task's model is no graph: the text names the input that is
    /// unknown, missing, given twice, or of another type, length or range, and lists the graph's inputs. The job still takes an answer.
    @discardableResult
    public func train(_ examples: GraphExamples, heldOut: GraphExamples? = nil) throws -> Bool {
        try inTime { try trainGraph(examples: examples, heldOut: heldOut) }
    }

    /// Answers an analysis (`analysis()`) with this device's rows: rows of `width` numbers, with its columns in their order, and in `targets` what is
    /// to be predicted of each row, if it predicts something. They stay on the device: what leaves it is what the analysis counts and sums of
    /// them, masked as the task prescribes. Give the same rows in the same order in each round.
    ///
    /// Returns whether they were handed in. If not, the round no longer waited, or the job was taken back: go on with the next one. Throws
    /// `TributaryError.Update` if they do not fit, or the job trains a model: nothing was sent, and the job still takes an answer.
    @discardableResult
    public func answer(_ rows: [Double], width: Int, targets: [Double]? = nil) throws -> Bool {
        let ofEach = targets.map { given in given.withUnsafeBytes { Data($0) } }
        return try inTime {
            try giveRows(rows: rows.withUnsafeBytes { Data($0) }, width: UInt64(width), targets: ofEach)
        }
    }

    /// Keeps the state of the training, as `saveCheckpoint(state:)`. Returns whether it was kept: if not, the round no longer waits, or the
    /// job was taken back, and training may stop.
    @discardableResult
    public func save(_ state: Data) throws -> Bool {
        try inTime { try saveCheckpoint(state: state) }
    }

    /// Says that training failed. The reason stays on the device. Where the round no longer waits, nobody is told.
    public func fail(_ reason: String) throws {
        _ = try inTime { try fail(reason: reason) }
    }

    /// Says that this app does not do such jobs. The reason stays on the device. Where the round no longer waits, nobody is told.
    public func refuse(_ reason: String) throws {
        _ = try inTime { try refuse(reason: reason) }
    }

    /// Whether the round still waited for the answer.
    private func inTime(_ answer: () throws -> Void) throws -> Bool {
        do {
            try answer()
            return true
        } catch TributaryError.Overdue {
            return false
        }
    }
}
