#if os(iOS)
import BackgroundTasks
import Foundation
import UIKit

/// Ready while the device charges, does not save power and is not hot. The network is what `BGProcessingTaskRequest` asks for.
public final class AppleConditions: DeviceConditions {
    @MainActor
    public init() {
        UIDevice.current.isBatteryMonitoringEnabled = true
        charging = Charging(UIDevice.current.batteryState)
        observer = NotificationCenter.default.addObserver(
            forName: UIDevice.batteryStateDidChangeNotification, object: nil, queue: .main
        ) { [charging] _ in
            MainActor.assumeIsolated { charging.set(UIDevice.current.batteryState) }
        }
    }

    private let charging: Charging
    private let observer: NSObjectProtocol

    deinit {
        NotificationCenter.default.removeObserver(observer)
    }

    public func isReady() throws -> Bool {
        let process = ProcessInfo.processInfo
        let isCool = process.thermalState == .nominal || process.thermalState == .fair
        return charging.isCharging && !process.isLowPowerModeEnabled && isCool
    }
}

/// The battery's state, which only the main thread may ask for.
private final class Charging: @unchecked Sendable {
    private let lock = NSLock()
    private var state: UIDevice.BatteryState

    init(_ state: UIDevice.BatteryState) {
        self.state = state
    }

    func set(_ state: UIDevice.BatteryState) {
        lock.withLock { self.state = state }
    }

    var isCharging: Bool {
        lock.withLock { state == .charging || state == .full }
    }
}

/// Takes part for a while, whenever the system has time for it. `register` before the app has finished launching; the identifier must
/// be in the app's Info.plist under `BGTaskSchedulerPermittedIdentifiers`, and `processing` under `UIBackgroundModes`.
public enum BackgroundTraining {
    /// `work` starts a participant, trains until it is cancelled, and closes the participant. The system may also kill the
    /// process at any instant: the journal knows how to go on.
    public static func register(_ identifier: String, work: @escaping @Sendable () async -> Void) {
        BGTaskScheduler.shared.register(forTaskWithIdentifier: identifier, using: nil) { task in
            schedule(identifier)
            let training = Task {
                await work()
                task.setTaskCompleted(success: !Task.isCancelled)
            }
            task.expirationHandler = { training.cancel() }
        }
    }

    /// Asks for the next run: on power and with a network.
    public static func schedule(_ identifier: String, after seconds: TimeInterval = 6 * 3600) {
        let request = BGProcessingTaskRequest(identifier: identifier)
        request.requiresExternalPower = true
        request.requiresNetworkConnectivity = true
        request.earliestBeginDate = Date(timeIntervalSinceNow: seconds)
        // Refused where the app may not run in the background, which is the user's choice.
        try? BGTaskScheduler.shared.submit(request)
    }
}
#endif
