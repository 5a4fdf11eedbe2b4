// How values get to the native library and back: as arrays of bytes. The generated code uses these declarations in the
// place of its own, which need JNA. scripts/kotlin-native leaves those out.

package dev.redlock.internal

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8

/** Converts values of one type between Kotlin and the library. */
internal interface FfiConverter<KotlinType, FfiType> {
    /** Converts a result of the library. */
    fun lift(value: FfiType): KotlinType

    /** Converts an argument for the library. */
    fun lower(value: KotlinType): FfiType

    /** Reads a value that is part of a larger one. */
    fun read(buf: ByteBuffer): KotlinType

    /** Returns how many bytes [write] writes at most. */
    fun allocationSize(value: KotlinType): ULong

    /** Writes a value that is part of a larger one. */
    fun write(value: KotlinType, buf: ByteBuffer)
}

/** Converts values that are passed as bytes. */
internal interface FfiConverterRustBuffer<KotlinType> : FfiConverter<KotlinType, ByteArray> {
    override fun lift(value: ByteArray): KotlinType {
        val buffer = ByteBuffer.wrap(value)
        return read(buffer).also { check(!buffer.hasRemaining()) { "a result is longer than its type" } }
    }

    override fun lower(value: KotlinType): ByteArray {
        val buffer = ByteBuffer.allocate(allocationSize(value).toInt())
        write(value, buffer)
        return if (buffer.hasRemaining()) buffer.array().copyOf(buffer.position()) else buffer.array()
    }
}

/** Converts strings, to UTF-8. Each was checked before: [dev.redlock.asUnicode]. */
internal object FfiConverterString : FfiConverter<String, ByteArray> {
    /** The most bytes of one `Char` in UTF-8. */
    private const val LONGEST = 3

    override fun lift(value: ByteArray): String = String(value, UTF_8)

    override fun lower(value: String): ByteArray = value.toByteArray(UTF_8)

    override fun read(buf: ByteBuffer): String = String(ByteArray(buf.getInt()).also { buf.get(it) }, UTF_8)

    override fun allocationSize(value: String): ULong = (Int.SIZE_BYTES + value.length * LONGEST).toULong()

    override fun write(value: String, buf: ByteBuffer) {
        val bytes = value.toByteArray(UTF_8)
        buf.putInt(bytes.size)
        buf.put(bytes)
    }
}

/** How a call of the library ended. The library writes the fields of a failed call, by these names. */
internal class UniffiRustCallStatus {
    @JvmField
    var code: Byte = UNIFFI_CALL_SUCCESS

    /** The error, or the message of a panic. */
    @Suppress("ktlint:standard:property-naming")
    lateinit var error_buf: ByteArray

    fun isSuccess(): Boolean = code == UNIFFI_CALL_SUCCESS

    fun isError(): Boolean = code == UNIFFI_CALL_ERROR

    fun isPanic(): Boolean = code == UNIFFI_CALL_UNEXPECTED_ERROR
}
