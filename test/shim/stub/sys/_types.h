/* SPDX-License-Identifier: ISC */
/* Stub, for a syntax check only: gcc's own stddef.h asks for it where __FreeBSD__ is defined. */
