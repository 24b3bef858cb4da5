package org.tributary.android

import android.content.Context
import android.net.ConnectivityManager
import android.os.BatteryManager
import android.os.Build
import android.os.PowerManager
import org.tributary.ffi.DeviceConditions
import org.tributary.ffi.DeviceState
import org.tributary.ffi.Thermal

/**
 * What this device is like. `deviceConditions` of the options say what is asked of it. A device that saves power counts as one that does not
 * charge. WorkManager's constraints start and stop the work; these also hold in the middle of it.
 */
public class AndroidConditions(context: Context) : DeviceConditions {
    private val battery = context.getSystemService(BatteryManager::class.java)
    private val network = context.getSystemService(ConnectivityManager::class.java)
    private val power = context.getSystemService(PowerManager::class.java)

    override fun state(): DeviceState = DeviceState(
        charging = battery.isCharging && !power.isPowerSaveMode,
        unmetered = network.activeNetwork != null && !network.isActiveNetworkMetered,
        // The screen is off.
        idle = !power.isInteractive,
        batteryPercent = battery.getIntProperty(BatteryManager.BATTERY_PROPERTY_CAPACITY).takeIf { it in 0..100 }?.toUByte(),
        thermal = thermal(),
    )

    private fun thermal(): Thermal {
        // Before Android 10 nobody tells, and the system slows down by itself.
        if (Build.VERSION.SDK_INT < Build.VERSION_CODES.Q) return Thermal.FAIR
        val status = power.currentThermalStatus
        return when {
            status <= PowerManager.THERMAL_STATUS_NONE -> Thermal.NOMINAL
            status <= PowerManager.THERMAL_STATUS_MODERATE -> Thermal.FAIR
            status <= PowerManager.THERMAL_STATUS_SEVERE -> Thermal.SERIOUS
            else -> Thermal.CRITICAL
        }
    }
}
