package org.tributary.android

import android.content.Context
import android.net.ConnectivityManager
import android.os.BatteryManager
import android.os.Build
import android.os.PowerManager
import org.tributary.ffi.DeviceConditions

/**
 * Ready while the device charges, is on an unmetered network, is not hot and does not save power. What is left out with `false` is
 * not asked. WorkManager's constraints start and stop the work; these also hold in the middle of it.
 */
public class AndroidConditions(
    context: Context,
    private val charging: Boolean = true,
    private val unmetered: Boolean = true,
) : DeviceConditions {
    private val battery = context.getSystemService(BatteryManager::class.java)
    private val network = context.getSystemService(ConnectivityManager::class.java)
    private val power = context.getSystemService(PowerManager::class.java)

    override fun isReady(): Boolean {
        if (charging && !battery.isCharging) return false
        if (unmetered && (network.activeNetwork == null || network.isActiveNetworkMetered)) return false
        if (power.isPowerSaveMode) return false
        return Build.VERSION.SDK_INT < Build.VERSION_CODES.Q || power.currentThermalStatus < PowerManager.THERMAL_STATUS_SEVERE
    }
}
